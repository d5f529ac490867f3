from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature, TensorSpec
from pierhead.modelserver.classification import CLASSIFY

STRINGS = TensorSpec("DT_STRING", (-1,))
SCORES = np.array([[0.25, 0.75]], np.float32)
LABELS = np.array([[b"cat", b"dog"]], object)


def signature(inputs: tuple[str, ...], outputs: tuple[str, ...], method: str = "classify") -> Signature:
    sides: Any = (dict.fromkeys(names, STRINGS) for names in (inputs, outputs))
    return Signature("s", f"tensorflow/serving/{method}", *sides)


def test_outputs_are_classes_and_scores_as_far_as_there() -> None:
    assert CLASSIFY.outputs(signature(("inputs",), ("scores", "classes"))) == ("classes", "scores")
    assert CLASSIFY.outputs(signature(("inputs",), ("scores", "other"))) == ("scores",)


@pytest.mark.parametrize(
    ("inputs", "outputs", "code", "beginning"),
    [
        (("inputs", "b"), ("scores",), Code.INVALID_ARGUMENT, "Expected one input Tensor."),
        ((), ("scores",), Code.INVALID_ARGUMENT, "Expected one input Tensor."),
        (
            ("inputs",),
            ("a", "b", "scores"),
            Code.INVALID_ARGUMENT,
            "Expected one or two output Tensors, found 3",
        ),
        (
            ("x",),
            ("scores",),
            Code.FAILED_PRECONDITION,
            "No classification inputs found in SignatureDef: inputs { x: DT_STRING }",
        ),
        (
            ("inputs",),
            ("y",),
            Code.FAILED_PRECONDITION,
            'Expected classification signature outputs to contain at least one of "classes" or "scores". '
            "Signature was: ",
        ),
    ],
)
def test_signature_that_is_no_classifier_is_told(
    inputs: tuple[str, ...], outputs: tuple[str, ...], code: Code, beginning: str
) -> None:
    with pytest.raises(ServingError) as caught:
        CLASSIFY.outputs(signature(inputs, outputs))

    assert (caught.value.code, caught.value.message[: len(beginning)]) == (code, beginning)


def test_signature_of_another_method_is_told() -> None:
    with pytest.raises(ServingError) as caught:
        CLASSIFY.check_method_name(signature(("inputs",), ("scores",), "predict"))

    assert caught.value.message == (
        "Expected classification signature method_name to be tensorflow/serving/classify. "
        "Was: tensorflow/serving/predict"
    )
    CLASSIFY.check_method_name(signature(("inputs",), ("scores",)))


def test_missing_labels_are_empty_and_missing_scores_zero() -> None:
    assert CLASSIFY.read({"classes": LABELS, "scores": SCORES}, 1) == [[(b"cat", 0.25), (b"dog", 0.75)]]
    assert CLASSIFY.read({"scores": SCORES}, 1) == [[(b"", 0.25), (b"", 0.75)]]
    assert CLASSIFY.read({"classes": LABELS}, 1) == [[(b"cat", 0.0), (b"dog", 0.0)]]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            {"scores": SCORES.reshape(2, 1, 1)},
            "Expected Tensor shape: [batch_size num_classes] but got [2,1,1]",
        ),
        ({"classes": SCORES}, "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
        ({"scores": SCORES.astype(np.float64)}, "Expected scores Tensor of DT_FLOAT. Got: DT_DOUBLE"),
        ({"scores": SCORES.reshape(2, 1)}, "Expected scores output batch size of 1. Got: 2"),
        (
            {"classes": LABELS, "scores": SCORES[:, :1]},
            "Tensors class and score should match in dim_size(1). Got 2 vs. 1",
        ),
    ],
)
def test_outputs_that_are_no_classes_are_told(outputs: Mapping[str, Array], message: str) -> None:
    with pytest.raises(ServingError) as caught:
        CLASSIFY.read(outputs, 1)

    assert (caught.value.code, caught.value.message) == (Code.INVALID_ARGUMENT, message)
