"""Dense lists of one kind of scalars, to numpy level by level, without a look at each element in Python.

Whatever is not plainly dense and of the dtype is left to `json_tensors`, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from pierhead.formats.dtypes import NUMPY_DTYPES
from pierhead.formats.tensors import Array

__all__ = ["plain_tensor"]

FLOATS, INTEGERS = {int, float}, {int}
# What numpy allows.
LARGEST_RANK = 64
FLOAT_DTYPES = ("DT_FLOAT", "DT_DOUBLE")


def plain_tensor(value: list[Any], dtype: str, bounds: tuple[int, int] | None) -> Array | None:
    """Return the list as an array of the dtype; None where it is empty, ragged, or of other elements.

    `bounds` are those of an integer dtype, None for any other.
    """
    shape, items = [len(value)], value
    while items and type(items[0]) is list:
        size = len(items[0])
        if set(map(type, items)) != {list} or set(map(len, items)) != {size}:
            return None
        shape.append(size)
        items = list(chain.from_iterable(items))
    if not items or len(shape) > LARGEST_RANK:
        return None
    flat = _flat_array(items, dtype, bounds)
    return flat if flat is None or len(shape) == 1 else flat.reshape(shape)


def _flat_array(items: list[Any], dtype: str, bounds: tuple[int, int] | None) -> Array | None:
    kinds = set(map(type, items))
    if dtype in FLOAT_DTYPES and kinds <= FLOATS:
        numbers = np.array(items, np.float64)
        if dtype == "DT_DOUBLE":
            return numbers
        with np.errstate(over="ignore"):
            return numbers.astype(np.float32)
    if bounds and kinds == INTEGERS and bounds[0] <= min(items) and max(items) <= bounds[1]:
        return np.array(items, np.uint64 if dtype == "DT_UINT64" else np.int64).astype(NUMPY_DTYPES[dtype])
    if dtype == "DT_STRING" and kinds == {str}:
        return _string_array(items)
    return np.array(items, bool) if dtype == "DT_BOOL" and kinds == {bool} else None


def _string_array(items: Sequence[str]) -> Array:
    array: Array = np.empty(len(items), object)
    array[:] = [item.encode(errors="surrogateescape") for item in items]
    return array
