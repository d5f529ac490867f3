"""Requests that are numpy arrays.

One array is what `{"instances": <the array as lists>}` is: the model's only input, whose 0th dimension is
the batch; only one without dimensions is `{"inputs": <the value>}`. An archive of arrays is
`{"inputs": <the arrays by name>}`. Elements become those of the signature's dtype where numpy's rule
`same_kind` allows it and no integer is out of range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pierhead.formats.dtypes import NUMPY_DTYPES, dtype_label
from pierhead.formats.json_tensors import invalid
from pierhead.formats.predict_json import Layout, PredictInputs
from pierhead.formats.tensors import Array, Signature, TensorSpec

__all__ = ["ArchiveDocument", "ArrayDocument", "fitted"]

# What `numpy.savez` calls an array that was given without a name.
UNNAMED = "arr_0"
# Members of what `scipy.sparse.save_npz` writes, whatever the matrix's format.
SPARSE = frozenset({"format", "shape", "data"})
LARGEST_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
TEXT_KINDS = "SU"


@dataclass(frozen=True)
class ArrayDocument:
    """A request that is one array without a name."""

    array: Array
    signature_name: str = ""

    def tensors(self, signature: Signature) -> PredictInputs:
        """Return the array as the signature's only input; raise ServingError where it does not fit."""
        if len(signature.inputs) != 1:
            names = _listed(signature.inputs)
            raise invalid(
                f"one array is for a model with one input, and this one has {len(signature.inputs)} "
                f"({names}): send application/x-npz"
            )
        ((name, spec),) = signature.inputs.items()
        layout = Layout.ROW if self.array.ndim else Layout.COLUMNAR
        return PredictInputs({name: fitted(name, self.array, spec)}, layout)


@dataclass(frozen=True)
class ArchiveDocument:
    """A request that is arrays by name."""

    arrays: Mapping[str, Array]
    signature_name: str = ""

    def tensors(self, signature: Signature) -> PredictInputs:
        """Return the arrays as the signature's inputs; raise ServingError where names or dtypes differ."""
        arrays, specs = self.arrays, signature.inputs
        if len(specs) == 1 and list(arrays) == [UNNAMED]:
            arrays = dict.fromkeys(specs, arrays[UNNAMED])
        if arrays.keys() != specs.keys():
            raise invalid(_name_problem(arrays, specs))
        inputs = {name: fitted(name, arrays[name], spec) for name, spec in specs.items()}
        return PredictInputs(inputs, Layout.COLUMNAR)


def fitted(name: str, array: Array, spec: TensorSpec) -> Array:
    """Return an input's array with the elements that its spec asks for.

    Raises ServingError (INVALID_ARGUMENT), naming both dtypes, where they are not of one kind.
    """
    wanted = NUMPY_DTYPES.get(spec.dtype)
    if wanted == np.dtype(object) and array.dtype.kind in TEXT_KINDS:
        return _byte_strings(name, array)
    is_text = array.dtype.kind in TEXT_KINDS or wanted == np.dtype(object)
    if wanted is None or is_text or not np.can_cast(array.dtype, wanted, "same_kind"):
        raise invalid(f"{name}: an array of {array.dtype} does not fit the input's type, {_label(spec)}")
    _refuse_out_of_range(name, array, wanted)
    with np.errstate(over="ignore"):
        return np.require(array, wanted, ["C", "A"])


def _refuse_out_of_range(name: str, array: Array, wanted: np.dtype[Any]) -> None:
    if wanted.kind not in "iu" or array.dtype.kind not in "iu" or not array.size:
        return
    bounds = np.iinfo(wanted)
    low, high = int(array.min()), int(array.max())
    if low < bounds.min or high > bounds.max:
        raise invalid(f"{name}: integers from {low} to {high} do not fit the input's type, {wanted}")


def _byte_strings(name: str, array: Array) -> Array:
    """Return texts in UTF-8, and bytes as they are; trailing NULs are no part of numpy's strings."""
    if array.dtype.kind == "U" and array.size:
        native = np.require(array, array.dtype.newbyteorder("="), ["C", "A"])
        points = native.reshape(-1).view(np.uint32)
        if points.max() > LARGEST_CODE_POINT or ((points >= SURROGATES[0]) & (points <= SURROGATES[1])).any():
            raise invalid(f"{name}: a string has code points that are no characters")
        array = np.char.encode(native, "utf-8")
    return array.astype(object, order="C")


def _name_problem(arrays: Mapping[str, Array], specs: Mapping[str, TensorSpec]) -> str:
    if SPARSE <= arrays.keys():
        return "a sparse matrix of scipy cannot be read: send matrix.toarray() as application/x-npy"
    return f"the arrays must have the names of the inputs, {_listed(specs)}; found: {_listed(arrays)}"


def _label(spec: TensorSpec) -> str:
    return dtype_label(spec.dtype)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
