"""Classify: labels and scores for each example.

Checks and messages: TensorFlow Serving's contract, sections 1.4 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from pierhead.errors import Code
from pierhead.formats.dtypes import dtype_name
from pierhead.formats.tensors import Array, Signature
from pierhead.modelserver.example_methods import INPUTS, ExamplesMethod, describe, refused

__all__ = ["CLASSIFY", "Classifications"]

CLASSES = "classes"
SCORES = "scores"
DTYPES = {CLASSES: "DT_STRING", SCORES: "DT_FLOAT"}
MATRIX = 2
# For each example its classes: label and score.
Classifications = list[list[tuple[bytes, float]]]


def classified_outputs(signature: Signature) -> tuple[str, ...]:
    """Return which of `classes` and `scores` a signature has; raise ServingError for no classifier's."""
    if len(signature.inputs) != 1:
        raise refused("Expected one input Tensor.")
    if len(signature.outputs) not in {1, 2}:
        raise refused(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if INPUTS not in signature.inputs:
        message = f"No classification inputs found in SignatureDef: {describe(signature)}"
        raise refused(message, Code.FAILED_PRECONDITION)
    wanted = tuple(name for name in DTYPES if name in signature.outputs)
    if not wanted:
        raise refused(
            'Expected classification signature outputs to contain at least one of "classes" or "scores". '
            f"Signature was: {describe(signature)}",
            Code.FAILED_PRECONDITION,
        )
    return wanted


def read_classifications(outputs: Mapping[str, Array], examples: int) -> Classifications:
    """Return the classes of each example; a missing label is empty, a missing score 0.

    Raises ServingError INVALID_ARGUMENT for outputs of another rank, dtype or number of rows.
    """
    for name, dtype in DTYPES.items():
        if name in outputs:
            _check(name, outputs[name], dtype, examples)
    sizes = [array.shape[1] for array in outputs.values()]
    if len(set(sizes)) > 1:
        classes, scores = outputs[CLASSES].shape[1], outputs[SCORES].shape[1]
        raise refused(f"Tensors class and score should match in dim_size(1). Got {classes} vs. {scores}")
    size = sizes[0]
    labels = outputs[CLASSES].tolist() if CLASSES in outputs else [[b""] * size] * examples
    scores = outputs[SCORES].tolist() if SCORES in outputs else [[0.0] * size] * examples
    return [list(zip(*row, strict=True)) for row in zip(labels, scores, strict=True)]


def _check(name: str, array: Array, dtype: str, examples: int) -> None:
    if array.ndim != MATRIX:
        shape = ",".join(map(str, array.shape))
        raise refused(f"Expected Tensor shape: [batch_size num_classes] but got [{shape}]")
    if dtype_name(array.dtype) != dtype:
        raise refused(f"Expected {name} Tensor of {dtype}. Got: {dtype_name(array.dtype)}")
    if len(array) != examples:
        raise refused(f"Expected {name} output batch size of {examples}. Got: {len(array)}")


CLASSIFY: ExamplesMethod[Classifications] = ExamplesMethod(
    "Classify", "classification", "tensorflow/serving/classify", classified_outputs, read_classifications
)
