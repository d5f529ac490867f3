"""TensorFlow's dtypes: their names, their numbers on the wire, and numpy's dtype for each.

DT_BFLOAT16 is only among them where the package ml_dtypes is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

__all__ = ["DTYPE_NUMBERS", "NUMPY_DTYPES", "dtype_label", "dtype_name"]

# The numbers of the enum `DataType` in tensorflow/core/framework/types.proto.
DTYPE_NUMBERS: dict[str, int] = {
    "DT_FLOAT": 1,
    "DT_DOUBLE": 2,
    "DT_INT32": 3,
    "DT_UINT8": 4,
    "DT_INT16": 5,
    "DT_INT8": 6,
    "DT_STRING": 7,
    "DT_COMPLEX64": 8,
    "DT_INT64": 9,
    "DT_BOOL": 10,
    "DT_BFLOAT16": 14,
    "DT_UINT16": 17,
    "DT_COMPLEX128": 18,
    "DT_HALF": 19,
    "DT_UINT32": 22,
    "DT_UINT64": 23,
}
NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "DT_FLOAT": np.dtype(np.float32),
    "DT_DOUBLE": np.dtype(np.float64),
    "DT_INT32": np.dtype(np.int32),
    "DT_UINT8": np.dtype(np.uint8),
    "DT_INT16": np.dtype(np.int16),
    "DT_INT8": np.dtype(np.int8),
    "DT_STRING": np.dtype(np.object_),
    "DT_COMPLEX64": np.dtype(np.complex64),
    "DT_INT64": np.dtype(np.int64),
    "DT_BOOL": np.dtype(np.bool_),
    "DT_UINT16": np.dtype(np.uint16),
    "DT_COMPLEX128": np.dtype(np.complex128),
    "DT_HALF": np.dtype(np.float16),
    "DT_UINT32": np.dtype(np.uint32),
    "DT_UINT64": np.dtype(np.uint64),
}
if bfloat16:
    NUMPY_DTYPES["DT_BFLOAT16"] = np.dtype(bfloat16)
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return TensorFlow's name of a dtype, such as `DT_FLOAT`; raise KeyError where it has none."""
    return _NAMES[dtype]


def dtype_label(name: str) -> str:
    """Return the name that messages give to a dtype: `float` for `DT_FLOAT`."""
    return name.removeprefix("DT_").lower()
