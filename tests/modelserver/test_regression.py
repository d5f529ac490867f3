from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature, TensorSpec
from pierhead.modelserver.regression import REGRESS

FLOATS = TensorSpec("DT_FLOAT", (-1,))


def signature(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Signature:
    sides: Any = (dict.fromkeys(names, FLOATS) for names in (inputs, outputs))
    return Signature("s", "tensorflow/serving/regress", *sides)


@pytest.mark.parametrize(
    ("inputs", "outputs", "code", "beginning"),
    [
        (("inputs", "b"), ("outputs",), Code.INVALID_ARGUMENT, "Expected one input Tensor."),
        (("inputs",), ("outputs", "b"), Code.INVALID_ARGUMENT, "Expected one output Tensor."),
        (("x",), ("outputs",), Code.FAILED_PRECONDITION, "No regression inputs found in SignatureDef: "),
        (("inputs",), ("y",), Code.FAILED_PRECONDITION, "No regression outputs found in SignatureDef: "),
    ],
)
def test_signature_that_is_no_regressor_is_told(
    inputs: tuple[str, ...], outputs: tuple[str, ...], code: Code, beginning: str
) -> None:
    with pytest.raises(ServingError) as caught:
        REGRESS.outputs(signature(inputs, outputs))

    assert (caught.value.code, caught.value.message[: len(beginning)]) == (code, beginning)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_there_is_one_value_for_each_example(shape: tuple[int, ...]) -> None:
    values = REGRESS.read({"outputs": np.array([0.5, 1.5], np.float32).reshape(shape)}, 2)

    assert values.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros((1, 2), np.float32),
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [1,2]",
        ),
        (
            np.float32(1).reshape(()),
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got []",
        ),
        (np.zeros(3, np.float32), "Input batch size did not match output batch size: 2 vs. 3"),
        (np.zeros(2), "Expected output Tensor of DT_FLOAT.  Got: DT_DOUBLE"),
    ],
)
def test_outputs_that_are_no_values_are_told(array: Array, message: str) -> None:
    with pytest.raises(ServingError) as caught:
        REGRESS.read({"outputs": array}, 2)

    assert (caught.value.code, caught.value.message) == (Code.INVALID_ARGUMENT, message)
