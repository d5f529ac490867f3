"""The parameters file, its defaults, and the rules of a load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pierhead.errors import Code, ServingError
from pierhead.modelserver.batching.parameters import BatchingParameters, check_parameters
from pierhead.modelserver.batching.parameters_file import read_parameters
from pierhead.settings import available_cpus

EVERYTHING = """
    # A comment, and both ways to write a message.
    max_batch_size { value: 128 } batch_timeout_micros: { value: 500 }
    max_enqueued_batches { value: 3 } num_batch_threads { value: 7 } thread_pool_name { value: 'p' }
    allowed_batch_sizes: 32 allowed_batch_sizes: 128
    pad_variable_length_inputs: true
    enable_large_batch_splitting { value: true } max_execution_batch_size { value: 64 }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "batching.config"
    path.write_text(text)
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    expected = BatchingParameters(128, 500, 3, 7, "p", (32, 128), True, True, 64)

    assert expected == read_parameters(written(tmp_path, EVERYTHING))


def test_unset_fields_have_the_defaults(tmp_path: Path) -> None:
    expected = replace(BatchingParameters(), thread_pool_name="batch_threads")

    assert expected == read_parameters(written(tmp_path, ""))
    assert (1000, 0, 10, available_cpus()) == (
        expected.max_batch_size,
        expected.batch_timeout_micros,
        expected.max_enqueued_batches,
        expected.num_batch_threads,
    )
    assert BatchingParameters().thread_pool_name == "model_server_batch_threads"


def test_zero_is_not_unset(tmp_path: Path) -> None:
    assert read_parameters(written(tmp_path, "max_enqueued_batches {}")).max_enqueued_batches == 0


@pytest.mark.parametrize("text", ["max_batch_size: 3", "max_batch {}", "{"])
def test_file_that_does_not_parse_is_named(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(ServingError, match=f"Invalid protobuf file: '{path}'") as caught:
        read_parameters(path)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="Invalid protobuf file"):
        read_parameters(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"allowed_batch_sizes": (2, 8), "max_batch_size": 16},
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 8; expected 16",
        ),
        (
            {"allowed_batch_sizes": (8, 2, 16), "max_batch_size": 16},
            "Entries of allowed_batch_sizes must be in increasing order",
        ),
        ({"max_batch_size": 0}, "input_batch_size_limit must be positive; was 0"),
        ({"batch_timeout_micros": -1}, "batch_timeout_micros must be non-negative; was -1"),
        (
            {"max_enqueued_batches": 0, "enable_large_batch_splitting": True},
            "max_enqueued_batches must be positive; was 0",
        ),
        (
            {"max_execution_batch_size": 2000, "enable_large_batch_splitting": True},
            "When enable_large_batch_splitting is true, input_batch_size_limit must be greater than or equal "
            "to max_execution_batch_size.",
        ),
    ],
)
def test_parameters_without_a_possible_queue_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ServingError) as caught:
        check_parameters(replace(BatchingParameters(), **changes))

    assert (Code.INVALID_ARGUMENT, message) == (caught.value.code, caught.value.message)


def test_no_queue_length_is_one_unless_requests_are_split() -> None:
    parameters = BatchingParameters(max_enqueued_batches=0)
    check_parameters(parameters)

    assert parameters.longest_queue == 1


def test_execution_size_counts_only_where_requests_are_split() -> None:
    parameters = BatchingParameters(max_batch_size=8, max_execution_batch_size=4)

    assert parameters.largest_batch == 8
    assert replace(parameters, enable_large_batch_splitting=True).largest_batch == 4
