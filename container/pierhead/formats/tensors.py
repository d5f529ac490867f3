"""What a tensor is to the formats: a numpy array, and the signature that names and types it.

Arrays of DT_STRING are numpy object arrays that hold `bytes`; every other dtype is numpy's own. Shapes in a
signature are advice and are never checked (TensorFlow Serving's contract, section 1.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

__all__ = ["DEFAULT_SIGNATURE", "Array", "Signature", "TensorSpec"]

Array = NDArray[Any]
DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class TensorSpec:
    """One input or output: its dtype by TensorFlow's name (`DT_FLOAT`), and its declared shape.

    `shape` holds -1 for an unknown dimension and is None for an unknown rank.
    """

    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Signature:
    """A function of a servable: inputs and outputs by name, and TensorFlow's name of its method."""

    name: str
    method_name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
