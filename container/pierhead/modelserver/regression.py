"""Regress: one value for each example.

Checks and messages: TensorFlow Serving's contract, sections 1.4 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from pierhead.errors import Code
from pierhead.formats.dtypes import dtype_name
from pierhead.formats.tensors import Array, Signature
from pierhead.modelserver.example_methods import INPUTS, ExamplesMethod, describe, refused

__all__ = ["REGRESS"]

OUTPUTS = "outputs"
DTYPE = "DT_FLOAT"


def regressed_outputs(signature: Signature) -> tuple[str, ...]:
    """Return the output of a signature; raise ServingError for no regressor's."""
    if len(signature.inputs) != 1:
        raise refused("Expected one input Tensor.")
    if len(signature.outputs) != 1:
        raise refused("Expected one output Tensor.")
    for side, names, wanted in (
        ("inputs", signature.inputs, INPUTS),
        ("outputs", signature.outputs, OUTPUTS),
    ):
        if wanted not in names:
            message = f"No regression {side} found in SignatureDef: {describe(signature)}"
            raise refused(message, Code.FAILED_PRECONDITION)
    return (OUTPUTS,)


def read_regressions(outputs: Mapping[str, Array], examples: int) -> Array:
    """Return a float32 for each example; raise ServingError INVALID_ARGUMENT for other outputs."""
    array = outputs[OUTPUTS]
    if array.ndim != 1 and array.shape[1:] != (1,):
        shape = ",".join(map(str, array.shape))
        raise refused(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [{shape}]"
        )
    if len(array) != examples:
        raise refused(f"Input batch size did not match output batch size: {examples} vs. {len(array)}")
    if dtype_name(array.dtype) != DTYPE:
        raise refused(f"Expected output Tensor of {DTYPE}.  Got: {dtype_name(array.dtype)}")
    return array.reshape(-1)


REGRESS: ExamplesMethod[Array] = ExamplesMethod(
    "Regress", "regression", "tensorflow/serving/regress", regressed_outputs, read_regressions
)
