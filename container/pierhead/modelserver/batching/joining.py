"""The arrays of one run, made of many requests' rows, and the outputs cut apart again.

Rules and messages: TensorFlow Serving's contract, section 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.modelserver.batching.parameters import BatchingParameters

__all__ = ["join_inputs", "split_outputs"]

LARGEST_RANK = 6
Arrays = Mapping[str, Array]


def join_inputs(
    tasks: Sequence[Arrays], parameters: BatchingParameters, feeds: Mapping[str, str]
) -> dict[str, Array]:
    """Return the tasks' inputs row after row, filled up to an allowed size; messages show `feeds`.

    Raises ServingError where shapes differ beyond dimension 0, and may not or cannot be made equal.
    """
    joined = {}
    for name in tasks[0]:
        arrays = [task[name] for task in tasks]
        if parameters.pad_variable_length_inputs:
            arrays = _made_equal(arrays)
        elif len({array.shape[1:] for array in arrays}) > 1:
            raise ServingError(Code.FAILED_PRECONDITION, _shapes_differ(feeds.get(name, name)))
        joined[name] = _filled_up(arrays, parameters)
    return joined


def split_outputs(outputs: Arrays, sizes: Sequence[int], rows: int) -> list[dict[str, Array]]:
    """Return the outputs of each task, by their sizes; of `rows` those that filled the batch up are left out.

    Raises ServingError FAILED_PRECONDITION for an output that does not have as many rows.
    """
    for array in outputs.values():
        if not array.ndim:
            raise ServingError(Code.FAILED_PRECONDITION, "Batched output tensor has 0 dimensions")
        if len(array) != rows:
            raise ServingError(
                Code.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of "
                "the input tensors",
            )
    ends = np.cumsum(sizes).tolist()
    return [
        {name: array[end - size : end] for name, array in outputs.items()}
        for size, end in zip(sizes, ends, strict=True)
    ]


def _filled_up(arrays: list[Array], parameters: BatchingParameters) -> Array:
    rows = sum(len(array) for array in arrays)
    missing = parameters.allowed_size(rows) - rows
    if missing:
        # A row that came from a client suits the model, which one of zeros might not.
        arrays = [*arrays, np.repeat(arrays[-1][:1], missing, axis=0)]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _made_equal(arrays: list[Array]) -> list[Array]:
    ranks = {array.ndim for array in arrays}
    if max(ranks) > LARGEST_RANK:
        raise ServingError(Code.INVALID_ARGUMENT, "Only tensors with rank from 1 to 6 can be padded.")
    if len(ranks) > 1:
        raise ServingError(Code.INVALID_ARGUMENT, "Tensors of different ranks cannot be padded.")
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) == 1:
        return arrays
    largest = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    return [_padded(array, largest) for array in arrays]


def _padded(array: Array, inner: tuple[int, ...]) -> Array:
    """Return an array with dimensions 1 and up extended at their ends by its own first element."""
    if array.shape[1:] == inner:
        return array
    if not array.size:
        message = "Got empty tensor in batch of non-empty tensors."
        raise ServingError(Code.INVALID_ARGUMENT, message)
    padded = np.full((len(array), *inner), array.flat[0], array.dtype)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded


def _shapes_differ(feed: str) -> str:
    return (
        f"Tensors with name '{feed}' from different tasks have different shapes and padding is turned off. "
        "Set pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal "
        "dimensions starting with the first dim."
    )
