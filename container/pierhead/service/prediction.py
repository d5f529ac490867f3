"""From a predict document to outputs: the way that the default handler and the pair of hooks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pierhead.formats.documents import Document
from pierhead.formats.dtypes import NUMPY_DTYPES
from pierhead.formats.predict_json import Layout
from pierhead.formats.tensors import Array, TensorSpec
from pierhead.service.backend import Backend
from pierhead.service.call import Call

__all__ = ["fit_arrays", "predict_arrays", "predict_document"]

Outputs = Mapping[str, Array]


def predict_document(document: Document, call: Call, backend: Backend) -> tuple[Outputs, Layout]:
    """Return the model's outputs for a document, and the layout that its answer has.

    Raises ServingError where the document does not fit the signature or the model server refuses it.
    """
    name = document.signature_name
    inputs = document.tensors(backend.signature(call, name))
    # The call may take long; a large body's numbers need not be held twice meanwhile.
    del document
    return backend.predict(call, name, inputs.arrays).outputs, inputs.layout


def predict_arrays(
    values: Mapping[str, Any], call: Call, backend: Backend, signature_name: str = ""
) -> Outputs:
    """Return the model's outputs for arrays or nested lists by input name; raise ServingError if refused."""
    told = backend.tells_signatures(call)
    arrays = fit_arrays(values, backend.signature(call, signature_name).inputs if told else {})
    return backend.predict(call, signature_name, arrays).outputs


def fit_arrays(values: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    """Return arrays of the dtypes that are declared for their names.

    numpy's `same_kind` rule says which casts are allowed, so that numpy's float64 fits a float model; other
    values stay as they are, and the model server says what is wrong. Texts become bytes.
    """
    return {name: _array(value, specs.get(name)) for name, value in values.items()}


def _array(value: Any, spec: TensorSpec | None) -> Array:
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return _string_array(array)
    wanted = _dtype(spec)
    if wanted is None or array.dtype == wanted or not np.can_cast(array.dtype, wanted, "same_kind"):
        return array
    return array.astype(wanted)


def _string_array(array: Array) -> Array:
    encoded: Array = (np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array).astype(object)
    return encoded


def _dtype(spec: TensorSpec | None) -> np.dtype[Any] | None:
    dtype = None if spec is None else NUMPY_DTYPES.get(spec.dtype)
    return None if dtype is None or dtype == np.dtype(object) else dtype
