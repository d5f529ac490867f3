"""From a predict document to outputs: the way that the default handler and the pair of hooks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pierhead.formats.dtypes import NUMPY_DTYPES
from pierhead.formats.predict_json import Layout, PredictDocument
from pierhead.formats.tensors import Array, Signature, TensorSpec
from pierhead.service.backend import Backend
from pierhead.service.call import Call

__all__ = ["predict_arrays", "predict_document"]

Outputs = Mapping[str, Array]


def predict_document(document: PredictDocument, call: Call, backend: Backend) -> tuple[Outputs, Layout]:
    """Return the model's outputs for a document, and the layout that its answer has.

    Raises ServingError where the document does not fit the signature or the model server refuses it.
    """
    name = document.signature_name
    inputs = document.tensors(backend.signature(call, name))
    return backend.predict(call, name, inputs.arrays).outputs, inputs.layout


def predict_arrays(values: Mapping[str, Any], call: Call, backend: Backend) -> Outputs:
    """Return the model's outputs for arrays or nested lists by input name; raise ServingError if refused.

    Values take the dtype of the signature where numpy's `same_kind` rule allows the cast, so that numpy's
    float64 fits a float model; others are sent as they are, and the model server says what is wrong.
    """
    signature = backend.signature(call, "")
    arrays = {name: _array(value, signature, name) for name, value in values.items()}
    return backend.predict(call, "", arrays).outputs


def _array(value: Any, signature: Signature, name: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return _string_array(array)
    wanted = _dtype(signature.inputs.get(name))
    if wanted is None or array.dtype == wanted or not np.can_cast(array.dtype, wanted, "same_kind"):
        return array
    return array.astype(wanted)


def _string_array(array: Array) -> Array:
    encoded: Array = (np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array).astype(object)
    return encoded


def _dtype(spec: TensorSpec | None) -> np.dtype[Any] | None:
    dtype = None if spec is None else NUMPY_DTYPES.get(spec.dtype)
    return None if dtype is None or dtype == np.dtype(object) else dtype
