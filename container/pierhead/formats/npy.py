"""Arrays in numpy's file format, versions 1 to 3 (numpy.lib.format), of which nothing is believed.

A header is matched, never evaluated, and what it promises must be there in bytes before anything is made of
it. Arrays of Python objects are pickles, which run code when they are read: they are refused.
"""

from __future__ import annotations

import io
import math
import re
import struct
from typing import Any

import numpy as np

from pierhead.errors import ServingError
from pierhead.formats.json_tensors import invalid
from pierhead.formats.tensors import Array

__all__ = ["read_npy", "write_npy"]

MAGIC = b"\x93NUMPY"
# The struct of the header's length, by major version.
LENGTHS = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}
LONGEST_HEADER = 10_000
# What numpy allows.
LARGEST_RANK = 64
SHAPE = rb"\(\s*+(?:[0-9]{1,19}\s*+(?:,\s*+|(?=\))))*+\)"
ENTRY = rb"""\s*+['"](\w++)['"]\s*+:\s*+('[^']*+'|"[^"]*+"|True|False|%s)\s*+,?+""" % SHAPE
ENTRIES = re.compile(ENTRY)
HEADER = re.compile(rb"\s*+\{(?:%s){3}\s*+\}\s*+" % ENTRY)
DTYPE = re.compile(rb"[<>|=]?(?:\?|[biufcSU][0-9]{1,9})")


def read_npy(body: bytes) -> Array:
    """Return the array, which shares the body's memory and cannot be written to.

    Raises ServingError (INVALID_ARGUMENT) where the body is no such file, promises more or less than it
    holds, or holds anything but numbers, booleans and strings.
    """
    header, start = _split(body)
    if not HEADER.fullmatch(header):
        raise _no_npy("its header is not that of one plain array")
    entries = dict(ENTRIES.findall(header))
    if entries.keys() != {b"descr", b"fortran_order", b"shape"}:
        raise _no_npy("its header is not that of one plain array")
    dtype, shape = _dtype(entries[b"descr"]), _shape(entries[b"shape"])
    _check_size(dtype, shape, len(body) - start)
    order = "F" if entries[b"fortran_order"] == b"True" else "C"
    return _array(body, start, dtype, shape, order)


def write_npy(array: Array) -> bytes:
    """Return the file of an array of numbers, booleans or fixed-width strings."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array, order="C"), allow_pickle=False)
    return stream.getvalue()


def _split(body: bytes) -> tuple[bytes, int]:
    """Return the header, and where the elements start."""
    if not body.startswith(MAGIC):
        raise _no_npy("it does not begin as one")
    version = body[len(MAGIC) : len(MAGIC) + 1]
    length = LENGTHS.get(version[0]) if version else None
    if length is None:
        raise _no_npy("its version is not 1, 2 or 3")
    start = len(MAGIC) + 2 + length.size
    if len(body) < start:
        raise _no_npy("it is cut off")
    (size,) = length.unpack_from(body, start - length.size)
    if size > LONGEST_HEADER or len(body) < start + size:
        raise _no_npy("its header is cut off or too long")
    return body[start : start + size], start + size


def _dtype(quoted: bytes) -> np.dtype[Any]:
    text = quoted[1:-1]
    if text.lstrip(b"<>|=").startswith(b"O"):
        raise invalid("arrays of Python objects are pickles, which are never read: send numbers or strings")
    try:
        if DTYPE.fullmatch(text):
            return np.dtype(text.decode())
    except (TypeError, ValueError) as problem:
        raise _no_npy(f"there is no dtype {text.decode(errors='replace')}") from problem
    raise _no_npy(f"a tensor cannot have the dtype {text[:40].decode(errors='replace')}")


def _shape(text: bytes) -> tuple[int, ...]:
    shape = tuple(int(size) for size in text[1:-1].split(b",") if size.strip())
    if len(shape) > LARGEST_RANK:
        raise _no_npy(f"it has {len(shape)} dimensions, more than {LARGEST_RANK}")
    return shape


def _check_size(dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> None:
    elements: int = math.prod(shape)
    promised = elements * dtype.itemsize
    # Elements of no bytes could be any number.
    if promised != size or (elements and not size):
        raise _no_npy(f"shape {shape} of {dtype} takes {promised} bytes, and {size} follow its header")


def _array(body: bytes, start: int, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any) -> Array:
    try:
        if start == len(body):
            return np.zeros(shape, dtype)
        flat: Array = np.frombuffer(body, dtype, offset=start)
        return flat.reshape(shape, order=order)
    except ValueError as problem:
        raise _no_npy(f"there is no array of shape {shape}") from problem


def _no_npy(reason: str) -> ServingError:
    return invalid(f"the body is no array in numpy's file format: {reason}")
