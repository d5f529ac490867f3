"""Arrays of many requests made one, and cut apart again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pierhead.errors import Code, ServingError
from pierhead.modelserver.batching.joining import join_inputs, split_outputs
from pierhead.modelserver.batching.parameters import BatchingParameters
from pierhead.modelserver.batching.tasks import rows_of

PLAIN = BatchingParameters()
PADDING = BatchingParameters(pad_variable_length_inputs=True)
FEEDS = {"x": "x:0"}


def joined(*tasks: Any, parameters: BatchingParameters = PLAIN) -> Any:
    return join_inputs([{"x": np.array(rows)} for rows in tasks], parameters, FEEDS)["x"].tolist()


def refusal(*tasks: Any, parameters: BatchingParameters = PLAIN) -> tuple[Code, str]:
    with pytest.raises(ServingError) as caught:
        joined(*tasks, parameters=parameters)
    return caught.value.code, caught.value.message


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.sampled_from([(), (4, 9, 50)]))
def test_each_task_gets_its_own_rows_back(sizes: list[int], allowed: tuple[int, ...]) -> None:
    parameters = BatchingParameters(allowed_batch_sizes=allowed)
    tasks = [{"x": np.full((size, 2), number)} for number, size in enumerate(sizes)]
    inputs = join_inputs(tasks, parameters, FEEDS)
    rows = rows_of(inputs)
    parts = split_outputs({"y": inputs["x"] * 2}, sizes, rows)

    assert rows == parameters.allowed_size(sum(sizes))
    for task, part in zip(tasks, parts, strict=True):
        assert (task["x"] * 2).tolist() == part["y"].tolist()


def test_batch_is_filled_up_with_the_first_row_of_its_last_task() -> None:
    parameters = BatchingParameters(max_batch_size=8, allowed_batch_sizes=(2, 6, 8))

    assert joined([1], [2, 3], parameters=parameters) == [1, 2, 3, 2, 2, 2]
    assert joined([1, 2], parameters=parameters) == [1, 2]
    assert joined(list(range(9)), parameters=parameters) == list(range(9))


def test_strings_are_joined_as_bytes() -> None:
    first, last = np.array([b"a"], object), np.array([b"longer"], object)
    array = join_inputs([{"x": first}, {"x": last}], PLAIN, FEEDS)["x"]

    assert (np.dtype(object), [b"a", b"longer"]) == (array.dtype, array.tolist())


def test_different_inner_shapes_are_refused_by_the_graphs_name() -> None:
    expected = (
        "Tensors with name 'x:0' from different tasks have different shapes and padding is turned off. Set "
        "pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal "
        "dimensions starting with the first dim."
    )

    assert (Code.FAILED_PRECONDITION, expected) == refusal([[1, 2]], [[1]])
    assert (Code.FAILED_PRECONDITION, expected) == refusal([[1]], [1])


def test_padding_repeats_each_tensors_own_first_element() -> None:
    assert joined([[1, 2]], [[3], [4]], parameters=PADDING) == [[1, 2], [3, 3], [4, 3]]
    assert joined([[[1], [2]]], [[[3, 4]]], parameters=PADDING) == [[[1, 1], [2, 1]], [[3, 4], [3, 3]]]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (([[]], [[1]]), "Got empty tensor in batch of non-empty tensors."),
        (([1], [[1]]), "Tensors of different ranks cannot be padded."),
        ((np.zeros((1,) * 7), np.zeros((1,) * 7)), "Only tensors with rank from 1 to 6 can be padded."),
    ],
)
def test_what_cannot_be_padded_is_refused(tasks: Any, message: str) -> None:
    assert (Code.INVALID_ARGUMENT, message) == refusal(*tasks, parameters=PADDING)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.float32(1), "Batched output tensor has 0 dimensions"),
        (
            np.zeros(4),
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
            "input tensors",
        ),
    ],
)
def test_outputs_without_the_batchs_rows_are_refused(output: Any, message: str) -> None:
    with pytest.raises(ServingError) as caught:
        split_outputs({"y": np.asarray(output)}, [1, 2], 3)

    assert (Code.FAILED_PRECONDITION, message) == (caught.value.code, caught.value.message)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "Batching Run() must have at least one input tensor"),
        (
            {"a": np.zeros(1), "b": np.float32(1)},
            "Batching Run() input tensors must have at least one dimension",
        ),
        (
            {"a": np.zeros(1), "b": np.zeros(2)},
            "Batching Run() input tensors must have equal 0th-dimension size",
        ),
    ],
)
def test_inputs_without_one_number_of_rows_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(ServingError) as caught:
        rows_of({name: np.asarray(array) for name, array in inputs.items()})

    assert (Code.INVALID_ARGUMENT, message) == (caught.value.code, caught.value.message)
