"""numpy arrays to and from TensorProto messages, in either of the two ways that the message holds values.

The functions work on the messages that they are given and import neither TensorFlow nor the stubs. Rules:
TensorFlow Serving's contract, section 2.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pierhead.errors import Code, ServingError
from pierhead.formats.dtypes import DTYPE_NUMBERS, NUMPY_DTYPES, dtype_name
from pierhead.formats.examples_json import Feature
from pierhead.formats.tensors import Array

__all__ = [
    "DTYPE_NAMES",
    "DTYPE_NUMBERS",
    "NUMPY_DTYPES",
    "read_tensor",
    "write_example",
    "write_tensor",
    "write_typed_tensor",
]

DTYPE_NAMES: dict[int, str] = {number: name for name, number in DTYPE_NUMBERS.items()}
_VALUE_FIELDS = {
    "DT_FLOAT": "float_val",
    "DT_DOUBLE": "double_val",
    "DT_INT32": "int_val",
    "DT_UINT8": "int_val",
    "DT_INT16": "int_val",
    "DT_INT8": "int_val",
    "DT_UINT16": "int_val",
    "DT_STRING": "string_val",
    "DT_COMPLEX64": "scomplex_val",
    "DT_COMPLEX128": "dcomplex_val",
    "DT_INT64": "int64_val",
    "DT_BOOL": "bool_val",
    "DT_BFLOAT16": "half_val",
    "DT_HALF": "half_val",
    "DT_UINT32": "uint32_val",
    "DT_UINT64": "uint64_val",
}
# A message of a few bytes may claim any shape, and its one value would be repeated to fill it; bytes.
LARGEST_FILLED = 1 << 28
# The dtype of a field's values where it is not the tensor's own: half_val holds bit patterns, scomplex_val
# pairs of parts.
_FIELD_DTYPES: dict[str, Any] = {
    "DT_HALF": np.uint16,
    "DT_BFLOAT16": np.uint16,
    "DT_COMPLEX64": np.float32,
    "DT_COMPLEX128": np.float64,
}


def write_tensor(array: Array, proto: Any) -> None:
    """Fill an empty TensorProto: numbers go into `tensor_content`, strings into `string_val`."""
    name = _write_head(array, proto)
    if name == "DT_STRING":
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.tensor_content = np.ascontiguousarray(array).tobytes()


def write_typed_tensor(array: Array, proto: Any) -> None:
    """Fill an empty TensorProto as TensorFlow Serving answers by default: every value in a typed field."""
    name = _write_head(array, proto)
    flat = np.ascontiguousarray(array).reshape(-1)
    if name in _FIELD_DTYPES:
        flat = flat.view(_FIELD_DTYPES[name])
    getattr(proto, _VALUE_FIELDS[name]).extend(flat.tolist())


def write_example(features: Mapping[str, Feature], proto: Any) -> None:
    """Fill an empty tf.Example with features; one without values stays without a kind."""
    for name, feature in features.items():
        slot = proto.features.feature[name]
        if feature.kind:
            getattr(slot, feature.kind).value.extend(feature.values)


def read_tensor(proto: Any, alias: str = "") -> Array:
    """Return the array that a TensorProto holds, DT_STRING as an object array of bytes.

    Raises ServingError (INVALID_ARGUMENT) naming `alias` where the message does not add up.
    """
    name = DTYPE_NAMES.get(proto.dtype, "")
    dims = [dim.size for dim in proto.tensor_shape.dim]
    if name not in NUMPY_DTYPES or proto.tensor_shape.unknown_rank or min(dims, default=0) < 0:
        raise _unreadable(alias)
    if proto.tensor_content and name != "DT_STRING":
        return _read_content(proto.tensor_content, NUMPY_DTYPES[name], dims, alias)
    return _read_values(proto, name, dims, alias)


def _write_head(array: Array, proto: Any) -> str:
    name = dtype_name(array.dtype)
    proto.dtype = DTYPE_NUMBERS[name]
    # Makes the shape present also where it has no dimension: a scalar's.
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    return name


def _read_content(content: bytes, dtype: np.dtype[Any], dims: list[int], alias: str) -> Array:
    if len(content) != math.prod(dims) * dtype.itemsize:
        raise _unreadable(alias)
    return _shaped(np.frombuffer(content, dtype), dims, alias)


def _read_values(proto: Any, name: str, dims: list[int], alias: str) -> Array:
    size = math.prod(dims)
    dtype = NUMPY_DTYPES[name]
    given = _given_values(getattr(proto, _VALUE_FIELDS[name]), name, dtype)[:size]
    if given.size == size:
        return _shaped(given, dims, alias)
    if size * dtype.itemsize > LARGEST_FILLED:
        raise _unreadable(alias)
    filler: Any = given[-1] if given.size else b"" if name == "DT_STRING" else 0
    array = np.full(size, filler, dtype)
    array[: given.size] = given
    return _shaped(array, dims, alias)


def _shaped(array: Array, dims: list[int], alias: str) -> Array:
    """Return the array in its shape; an empty one may claim dimensions, or more of them, than numpy knows."""
    try:
        return array.reshape(dims)
    except (ValueError, OverflowError) as problem:
        raise _unreadable(alias) from problem


def _given_values(values: Any, name: str, dtype: np.dtype[Any]) -> Array:
    if name == "DT_STRING":
        given: Array = np.empty(len(values), object)
        given[:] = list(values)
        return given
    if name in {"DT_COMPLEX64", "DT_COMPLEX128"}:
        parts = np.array(values, _FIELD_DTYPES[name])
        return parts[: parts.size // 2 * 2].view(dtype)
    if name in _FIELD_DTYPES:
        return np.array(values, np.int64).astype(np.uint16).view(dtype)
    # By way of int64: numpy refuses what does not fit a narrow integer, TensorFlow lets it wrap around.
    return np.array(values, np.int64).astype(dtype) if dtype.itemsize < 4 else np.array(values, dtype)


def _unreadable(alias: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, f"tensor parsing error: {alias}")
