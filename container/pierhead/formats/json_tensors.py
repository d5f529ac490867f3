"""One JSON value to one tensor: its shape from the first element at each level, its elements by the dtype.

Rules: TensorFlow Serving's contract, sections 2.2 and 2.3.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from pierhead.errors import Code, ServingError
from pierhead.formats.dtypes import NUMPY_DTYPES, dtype_label
from pierhead.formats.json_document import Json, exact
from pierhead.formats.json_echo import echo, kind
from pierhead.formats.json_writing import encoded
from pierhead.formats.numeric_array import NumericArray
from pierhead.formats.plain_lists import plain_tensor
from pierhead.formats.tensors import Array

__all__ = ["invalid", "is_base64", "string_bytes", "tensor"]

Element: TypeAlias = bool | int | float | bytes
Converter: TypeAlias = Callable[[Json], Element]
# What numpy allows.
LARGEST_RANK = 64
INTEGER_DTYPES = ("DT_INT8", "DT_INT16", "DT_INT32", "DT_INT64", "DT_UINT8", "DT_UINT32", "DT_UINT64")
INT32 = (-(2**31), 2**31 - 1)
# The narrow types are checked as int32 and then wrap around.
INTEGER_BOUNDS = {
    "DT_INT64": (-(2**63), 2**63 - 1),
    "DT_UINT32": (0, 2**32 - 1),
    "DT_UINT64": (0, 2**64 - 1),
}
FLOAT_DTYPES = ("DT_FLOAT", "DT_DOUBLE")
ASCII_SPACE = b" \t\n\r\v\f"


def invalid(message: str) -> ServingError:
    """Return a refusal for what the request says."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def is_base64(value: Json) -> bool:
    """Tell whether the value is an object that stands for bytes: `{"b64": "..."}`."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def tensor(value: Json, dtype: str) -> Array:
    """Return the value as an array of the dtype; raise ServingError where it is ragged or of another type."""
    if isinstance(value, NumericArray):
        array = _quick_tensor(value.array, dtype)
        if array is not None:
            return array
    elif isinstance(value, list):
        bounds = INTEGER_BOUNDS.get(dtype, INT32) if dtype in INTEGER_DTYPES else None
        array = plain_tensor(value, dtype, bounds)
        if array is not None:
            return array
    return _exact_tensor(value, dtype)


def _quick_tensor(numbers: Array, dtype: str) -> Array | None:
    """Return the numbers as they are of the dtype, None where the exact way has to say what is wrong."""
    if dtype in FLOAT_DTYPES:
        with np.errstate(over="ignore"):
            # By way of float64, as the exact way and TensorFlow Serving go.
            return numbers.astype(np.float64, copy=False).astype(NUMPY_DTYPES[dtype], copy=False)
    if dtype not in INTEGER_DTYPES or numbers.dtype != np.int64:
        return None
    low, high = INTEGER_BOUNDS.get(dtype, INT32)
    if numbers.size and (numbers.min() < low or numbers.max() > high):
        return None
    return numbers.astype(NUMPY_DTYPES[dtype], copy=False)


def _exact_tensor(value: Json, dtype: str) -> Array:
    shape = _first_shape(value)
    if len(shape) > LARGEST_RANK:
        raise invalid(f"JSON Value: {echo(value)} has {len(shape)} dimensions, more than {LARGEST_RANK}")
    collection = Collection(shape, dtype, _converter(dtype), [])
    collection.add(value, 0)
    return _array(collection.elements, dtype).reshape(shape)


@dataclass(frozen=True)
class Collection:
    """The elements of a tensor of a known shape, as they are found one after another."""

    shape: tuple[int, ...]
    dtype: str
    convert: Converter
    elements: list[Element]

    def add(self, value: Json, level: int) -> None:
        """Append all elements of a value within `level` lists.

        Raises ServingError at the first that departs from the shape or the dtype.
        """
        if isinstance(value, NumericArray):
            self._add_numbers(value, level)
        elif isinstance(value, list):
            self._refuse_other_list(value, level)
            for item in value:
                self.add(item, level + 1)
        elif level < len(self.shape):
            raise invalid(
                f"JSON Value: {echo(value)} found at incorrect level: {level + 1} in the JSON DOM. "
                f"Expected at level: {len(self.shape)}"
            )
        else:
            self.elements.append(self.convert(value))

    def _add_numbers(self, numbers: NumericArray, level: int) -> None:
        quick = _quick_tensor(numbers.array, self.dtype)
        if quick is not None and quick.shape == self.shape[level:]:
            self.elements.extend(quick.reshape(-1).tolist())
        else:
            self.add(exact(numbers), level)

    def _refuse_other_list(self, value: list[Json], level: int) -> None:
        if level >= len(self.shape):
            raise invalid(f"Encountered list at unexpected level: {level} expected < {len(self.shape)}")
        if len(value) != self.shape[level]:
            raise invalid(
                f"Encountered list at unexpected size: {len(value)} at level: {level} "
                f"expected size: {self.shape[level]}"
            )


def _first_shape(value: Json) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return (*shape, *value.array.shape) if isinstance(value, NumericArray) else tuple(shape)


def _converter(dtype: str) -> Converter:
    """Return the function that makes a JSON value an element of the dtype, or refuses it."""
    if dtype in FLOAT_DTYPES:
        return partial(_float, label=dtype_label(dtype))
    if dtype in INTEGER_DTYPES:
        return partial(_integer, label=dtype_label(dtype), bounds=INTEGER_BOUNDS.get(dtype, INT32))
    if dtype == "DT_BOOL":
        return _bool
    if dtype == "DT_STRING":
        return string_bytes
    return partial(_unsupported, label=dtype_label(dtype))


def _float(value: Json, label: str) -> Element:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise _wrong_type(value, label)


def _integer(value: Json, label: str, bounds: tuple[int, int]) -> Element:
    if isinstance(value, int) and not isinstance(value, bool) and bounds[0] <= value <= bounds[1]:
        return value
    raise _wrong_type(value, label)


def _bool(value: Json) -> Element:
    if isinstance(value, bool):
        return value
    raise _wrong_type(value, "bool")


def string_bytes(value: Json) -> bytes:
    """Return the bytes of a string or of a base64 object; raise ServingError for any other value."""
    if isinstance(value, str):
        return encoded(value)
    if not isinstance(value, dict):
        raise _wrong_type(value, "string")
    text = value.get("b64")
    if not isinstance(text, str) or len(value) != 1:
        raise invalid(f"JSON Value: {echo(value)} not formatted correctly for base64 data")
    digits = encoded(text).translate(None, ASCII_SPACE).rstrip(b"=")
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except binascii.Error as problem:
        raise invalid("Unable to base64 decode") from problem


def _unsupported(value: Json, label: str) -> Element:
    raise ServingError(Code.UNIMPLEMENTED, f"Conversion of JSON Value: {echo(value)} to type: {label}")


def _wrong_type(value: Json, label: str) -> ServingError:
    return invalid(f"JSON Value: {echo(value)} Type: {kind(value)} is not of expected type: {label}")


def _array(elements: list[Element], dtype: str) -> Array:
    if dtype in FLOAT_DTYPES:
        with np.errstate(over="ignore"):
            return np.array(elements, np.float64).astype(NUMPY_DTYPES[dtype], copy=False)
    if dtype in INTEGER_DTYPES:
        wide = np.uint64 if dtype == "DT_UINT64" else np.int64
        return np.array(elements, wide).astype(NUMPY_DTYPES[dtype], copy=False)
    # Of a dtype that JSON cannot hold there are no elements: the first was refused.
    array: Array = np.empty(len(elements), NUMPY_DTYPES.get(dtype, object))
    array[:] = elements
    return array
