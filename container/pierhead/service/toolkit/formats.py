"""What the toolkit's functions get and give where the user defines none: JSON, CSV and numpy's files.

Never pickles, which run code when they are read. CSV is always rows and columns, also where there is one row:
the toolkit itself drops that dimension, and models then refuse the array.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pierhead.errors import Code, ServingError, UnsupportedMediaType
from pierhead.formats.csv_rows import read_rows, render_rows
from pierhead.formats.json_document import exact
from pierhead.formats.json_lines import read_values
from pierhead.formats.media_types import CSV, JSON, JSON_LINES, NPY, NPZ, choose, media_type
from pierhead.formats.npy import read_npy, write_npy
from pierhead.formats.npz import read_npz
from pierhead.formats.numeric_array import NumericArray
from pierhead.formats.tensors import Array
from pierhead.service.prediction import fit_arrays

__all__ = ["decode_input", "encode_prediction", "read_text"]

TEXTS = (JSON, CSV)


def read_text(body: bytes, content_type: str) -> str | bytes:
    """Return JSON and CSV as text and every other body as bytes, as the toolkit hands them to input_fn.

    Raises ServingError (INVALID_ARGUMENT) where the text is not UTF-8.
    """
    if media_type(content_type) not in TEXTS:
        return body
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"the body is not UTF-8: {problem}") from problem


def decode_input(body: str | bytes, content_type: str, largest: int) -> Any:
    """Return a body as numpy array: of CSV [rows, columns], of npz a dict of arrays by name.

    JSON that is no list stays what it is. `largest` is in bytes and bounds what is decompressed. Raises
    UnsupportedMediaType, and ServingError (INVALID_ARGUMENT) where the body is not of its type.
    """
    name = media_type(content_type) or JSON
    if name != NPZ and name not in DECODERS:
        supported = ", ".join([*DECODERS, NPZ])
        raise UnsupportedMediaType(f"Content-Type {name} needs an input_fn; without one: {supported}")
    data = body.encode() if isinstance(body, str) else body
    return read_npz(data, largest) if name == NPZ else DECODERS[name](data)


def encode_prediction(prediction: Any, accept: str, default: str) -> tuple[bytes, str]:
    """Return a prediction as body and content type, in the first type of `accept` that can be written.

    Raises NotAcceptable, and TypeError for what the type cannot hold.
    """
    preferred = media_type(default)
    supported = sorted(ENCODERS, key=lambda name: name != preferred)
    name = choose(accept, supported)
    return ENCODERS[name](prediction), name


def _decode_json(body: bytes) -> Any:
    values = read_values(body)
    if isinstance(values, NumericArray):
        return values.array
    return _array(values[0] if len(values) == 1 else values)


def _decode_json_lines(body: bytes) -> Any:
    values = read_values(body)
    return values.array if isinstance(values, NumericArray) else _array(values)


def _array(value: Any) -> Any:
    if isinstance(value, NumericArray):
        return value.array
    if not isinstance(value, list):
        return value
    plain = [exact(each) for each in value]
    if any(isinstance(each, dict) for each in plain):
        return plain
    try:
        return np.asarray(plain)
    except ValueError as problem:
        message = "the lists are of unequal lengths: they are no array"
        raise ServingError(Code.INVALID_ARGUMENT, message) from problem


def _decode_csv(body: bytes) -> Array:
    rows = read_rows(body)
    if isinstance(rows, NumericArray):
        return rows.array.reshape(len(rows.array), -1)
    listed = [row if isinstance(row, list) else [row] for row in rows]
    if len({len(row) for row in listed}) > 1:
        raise ServingError(Code.INVALID_ARGUMENT, "CSV Parse error: the rows have unequal numbers of cells")
    has_text = any(isinstance(cell, str) for row in listed for cell in row)
    return np.asarray(listed, object if has_text else None)


def _encode_json(prediction: Any) -> bytes:
    return json.dumps(prediction, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return what JSON can hold of a value that it cannot."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"the prediction holds a {type(value).__name__}, which JSON cannot: define an output_fn")


def _encode_csv(prediction: Any) -> bytes:
    arrays = fit_arrays({"": np.atleast_1d(np.asarray(prediction))}, {})
    return render_rows(arrays)


def _encode_npy(prediction: Any) -> bytes:
    return write_npy(np.asarray(prediction))


DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    JSON: _decode_json,
    **dict.fromkeys(JSON_LINES, _decode_json_lines),
    CSV: _decode_csv,
    NPY: read_npy,
}
ENCODERS: Mapping[str, Callable[[Any], bytes]] = {JSON: _encode_json, CSV: _encode_csv, NPY: _encode_npy}
