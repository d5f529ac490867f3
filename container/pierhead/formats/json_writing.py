"""JSON text of scalars, as TensorFlow Serving writes it: strings, floats, integers and bools of whole arrays.

Floats follow TensorFlow Serving's contract, section 6: `%.6g` where that reads back as the same value, else
`%.9g` (float32) or `%.17g` (float64), and never without a sign of being decimal.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np

from pierhead.errors import Code, ServingError
from pierhead.formats.dtypes import dtype_label, dtype_name
from pierhead.formats.float_texts import float32_texts
from pierhead.formats.numeric_array import read_numeric_array
from pierhead.formats.tensors import Array

__all__ = [
    "INDENT",
    "encoded",
    "has_bytes",
    "list_text",
    "nested_text",
    "object_text",
    "quoted",
    "scalar_texts",
]

ESCAPED = re.compile(rb'["\\\x00-\x1f]')
NAMED_ESCAPES = {
    b'"': b'\\"', b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t"
}  # fmt: skip
NON_FINITE = {b"nan": b"NaN", b"inf": b"Infinity", b"-inf": b"-Infinity"}
FLOAT_DIGITS = {np.dtype(np.float32): 9, np.dtype(np.float64): 17}
# Up to here one by one is faster than numpy.
FEW = {np.dtype(np.float32): 64, np.dtype(np.float64): 24}
INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"})
INDENT = b"    "
BYTES_SUFFIX = "_bytes"


def encoded(text: str) -> bytes:
    """Return the bytes that a string of a JSON document was read from."""
    return text.encode(errors="surrogateescape")


def quoted(text: bytes) -> bytes:
    """Return a JSON string; bytes that are not UTF-8 stay as they are, as TensorFlow Serving leaves them."""
    return b'"' + ESCAPED.sub(_escape, text) + b'"'


def scalar_texts(array: Array) -> list[bytes]:
    """Return the JSON text of each element in row order.

    Raises ServingError (INVALID_ARGUMENT) for a dtype that TensorFlow Serving does not write.
    """
    flat = array.reshape(-1)
    if flat.dtype == object:
        return [quoted(text) for text in flat.tolist()]
    if flat.dtype == bool:
        return [b"true" if value else b"false" for value in flat.tolist()]
    if flat.dtype in FLOAT_DIGITS:
        return _float_texts(flat)
    if flat.dtype.name not in INTEGERS:
        label = dtype_label(dtype_name(flat.dtype))
        raise ServingError(Code.INVALID_ARGUMENT, f"Failed to write JSON value for tensor type: {label}")
    return str(flat.tolist())[1:-1].encode().split(b", ")


def has_bytes(name: str, array: Array) -> bool:
    """Tell whether an output holds bytes, which are written in base64, and not text."""
    return array.dtype == object and name.endswith(BYTES_SUFFIX)


def nested_text(texts: list[bytes], shape: tuple[int, ...], level: int | None) -> list[bytes]:
    """Return one text for each element of the first dimension, with lists for the dimensions after it.

    Those elements stand within `level` containers; None puts lists on one line.
    """
    for depth in range(len(shape) - 1, 0, -1):
        size = shape[depth]
        within = None if level is None else level + depth - 1
        starts = range(0, size * math.prod(shape[:depth]), size) if size else [0] * math.prod(shape[:depth])
        texts = [list_text(texts[start : start + size], within) for start in starts]
    return texts


def list_text(texts: list[bytes], level: int | None) -> bytes:
    """Return the text of a list that stands within `level` containers; None puts it on one line."""
    if level is None or not texts:
        return b"[" + b", ".join(texts) + b"]"
    line = b"\n" + INDENT * (level + 1)
    return b"[" + line + (b"," + line).join(texts) + b"\n" + INDENT * level + b"]"


def object_text(members: list[tuple[bytes, bytes]], level: int | None) -> bytes:
    """Return the text of an object of quoted names and texts; `level` is as for `list_text`."""
    texts = [name + b": " + text for name, text in members]
    if level is None:
        return b"{" + b", ".join(texts) + b"}"
    line = b"\n" + INDENT * (level + 1)
    return b"{" + line + (b"," + line).join(texts) + b"\n" + INDENT * level + b"}"


def _float_texts(flat: Array) -> list[bytes]:
    if flat.size <= FEW[flat.dtype]:
        return [_float_text(value, flat.dtype) for value in flat.tolist()]
    if flat.dtype == np.float32:
        return float32_texts(flat, partial(_float_text, dtype=flat.dtype))
    texts = _formatted(flat, 6)
    read_back = _read_back(texts).astype(flat.dtype)
    # NaN differs from itself and is formatted twice, to the same text.
    inexact = np.flatnonzero(read_back != flat)
    for at, text in zip(inexact.tolist(), _formatted(flat[inexact], FLOAT_DIGITS[flat.dtype]), strict=True):
        texts[at] = text
    whole_or_not_finite = np.flatnonzero(~(flat != np.trunc(flat)) | ~np.isfinite(flat))
    for at in whole_or_not_finite.tolist():
        texts[at] = _marked(texts[at])
    return texts


def _float_text(value: float, dtype: np.dtype[Any]) -> bytes:
    text = b"%.6g" % value
    read_back = float(text)
    # What is the same as a double is the same as a float32.
    if read_back != value and float(dtype.type(read_back)) != value:
        text = b"%.*g" % (FLOAT_DIGITS[dtype], value)
    return _marked(text)


def _read_back(texts: list[bytes]) -> Array:
    numbers = read_numeric_array(b"[" + b",".join(texts) + b"]")
    return np.array(texts, np.float64) if numbers is None else numbers.array


def _formatted(flat: Array, digits: int) -> list[bytes]:
    """Return `%.<digits>g` of each value; one long format is several times faster than one for each."""
    if not flat.size:
        return []
    one = b"%%.%dg " % digits
    return (one * flat.size % tuple(flat.tolist())).split()


def _escape(found: re.Match[bytes]) -> bytes:
    return NAMED_ESCAPES.get(found[0]) or b"\\u%04X" % ord(found[0])


def _marked(text: bytes) -> bytes:
    return text if b"." in text or b"e" in text else NON_FINITE.get(text) or text + b".0"
