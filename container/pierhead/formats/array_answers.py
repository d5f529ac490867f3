"""Answers that are numpy arrays: one output as an .npy file, several as an .npz archive.

Strings become numpy's own: text for most outputs, base64 for those whose name ends in `_bytes`, as in CSV.
What numpy's fixed-width strings cannot hold is refused: bytes that are not UTF-8, a NUL at the end, and
arrays that one long string would make huge. bfloat16, which numpy's format has no name for, becomes float32.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import numpy as np

from pierhead.errors import NotAcceptable
from pierhead.formats.dtypes import dtype_name
from pierhead.formats.json_writing import has_bytes
from pierhead.formats.media_types import JSON, NPY, NPZ
from pierhead.formats.npy import write_npy
from pierhead.formats.npz import write_npz
from pierhead.formats.tensors import Array

__all__ = ["render_archive", "render_array"]

# Bytes of an array of strings, each of which takes what the longest one does.
LARGEST_STRINGS = 1 << 28
CHARACTER = 4


def render_array(outputs: Mapping[str, Array]) -> bytes:
    """Return the only output as an .npy file; raise NotAcceptable for several, and what it cannot hold."""
    if len(outputs) != 1:
        names = ", ".join(sorted(outputs))
        raise NotAcceptable(
            f"{NPY} holds one array, and the model has {len(outputs)} outputs ({names}): "
            f"accept {NPZ} or {JSON}"
        )
    ((name, array),) = outputs.items()
    return write_npy(_plain(name, array, NPY))


def render_archive(outputs: Mapping[str, Array]) -> bytes:
    """Return the outputs by name as an .npz archive; raise NotAcceptable for what it cannot hold."""
    return write_npz({name: _plain(name, array, NPZ) for name, array in outputs.items()})


def _plain(name: str, array: Array, media_type: str) -> Array:
    """Return an array that numpy's format can hold without pickles."""
    if array.dtype == object:
        return _strings(name, array, media_type)
    return array.astype(np.float32) if dtype_name(array.dtype) == "DT_BFLOAT16" else array


def _strings(name: str, array: Array, media_type: str) -> Array:
    values: list[bytes] = array.reshape(-1).tolist()
    if has_bytes(name, array):
        values = [base64.b64encode(value) for value in values]
    try:
        texts = [value.decode() for value in values]
    except UnicodeDecodeError as problem:
        raise _refused(name, "is not UTF-8", media_type) from problem
    if any(text.endswith("\0") for text in texts):
        raise _refused(name, "ends with a NUL", media_type)
    if len(texts) * max(map(len, texts), default=0) * CHARACTER > LARGEST_STRINGS:
        raise _refused(name, "is too long for an array of so many", media_type)
    return np.array(texts, np.str_).reshape(array.shape)


def _refused(name: str, reason: str, media_type: str) -> NotAcceptable:
    return NotAcceptable(
        f"a string of the output {name} {reason}; {media_type} cannot hold it: accept {JSON}"
    )
