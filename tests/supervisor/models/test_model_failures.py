"""Why a model could not be loaded."""

from __future__ import annotations

import errno
import signal

import pytest
from tests.supervisor.test_stack import FakeSpawner

from pierhead.control import StartFailed
from pierhead.errors import LACKS, Code
from pierhead.supervisor.group import ProcessGroup, Surroundings
from pierhead.supervisor.memory_use import MemoryUse
from pierhead.supervisor.models.failures import explain_end, explain_timeout, refuse_full_memory
from pierhead.supervisor.process import ProcessSpec

NAME = "a/model-server-1"
MB = 1 << 20


def group_of_one() -> ProcessGroup:
    surroundings = Surroundings(FakeSpawner(), lambda _: None, lambda: 0.0)
    return ProcessGroup([ProcessSpec(NAME, ("/x",))], surroundings, probes={}, workers="", worker_count=1)


def ended_group(status: int) -> ProcessGroup:
    group = group_of_one()
    group.advance(0.0)
    group.record_exit(group.processes[NAME], status)
    return group


def refused_group(error_number: int) -> ProcessGroup:
    group = group_of_one()
    group.advance(0.0)
    group.note_fork_failed(NAME, error_number)
    return group


def code_of(group: ProcessGroup, *last_lines: str) -> Code:
    return explain_end("a", group.processes[NAME], group, last_lines).code


def test_process_that_was_killed_found_no_memory() -> None:
    assert code_of(ended_group(-signal.SIGKILL)) is Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("status", [0, 1, 137, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGTERM])
def test_other_end_is_internal(status: int) -> None:
    failure = explain_end("a", (group := ended_group(status)).processes[NAME], group, ("out of memory?",))

    assert failure.code is Code.INTERNAL
    assert failure.message.startswith("model 'a' cannot be loaded: its model-server-1 ")


@pytest.mark.parametrize("error_number", sorted(LACKS))
def test_lack_that_the_system_names_is_exhaustion(error_number: int) -> None:
    assert code_of(refused_group(error_number)) is Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("error_number", [errno.ENOENT, errno.EACCES, errno.EPERM])
def test_other_error_of_the_system_is_internal(error_number: int) -> None:
    assert code_of(refused_group(error_number)) is Code.INTERNAL


def test_last_line_counts_and_an_earlier_one_does_not() -> None:
    assert code_of(ended_group(1), "loading", "out of memory") is Code.RESOURCE_EXHAUSTED
    assert code_of(ended_group(1), "out of memory", "no such op") is Code.INTERNAL


def test_what_the_process_said_wins_over_all_else() -> None:
    group = ended_group(-signal.SIGKILL)
    group.start_failure = StartFailed(NAME, Code.INVALID_ARGUMENT, "the hooks lack a function")

    failure = explain_end("a", group.processes[NAME], group, ["out of memory"])

    assert failure.code is Code.INVALID_ARGUMENT
    assert failure.message == "model 'a' cannot be loaded: the hooks lack a function"


@pytest.mark.parametrize("code", [99, -1, 0])
def test_code_that_is_no_failure_is_internal(code: int) -> None:
    group = ended_group(1)
    group.start_failure = StartFailed(NAME, code, "odd")

    assert code_of(group) is Code.INTERNAL


@pytest.mark.parametrize(
    ("use", "watermark", "code"),
    [
        (None, 90, Code.DEADLINE_EXCEEDED),
        (MemoryUse(90 * MB, 100 * MB), 90, Code.DEADLINE_EXCEEDED),
        (MemoryUse(91 * MB, 100 * MB), 90, Code.RESOURCE_EXHAUSTED),
        (MemoryUse(100 * MB, 100 * MB), 100, Code.DEADLINE_EXCEEDED),
    ],
)
def test_timeout_in_full_memory_is_exhaustion(use: MemoryUse | None, watermark: int, code: Code) -> None:
    failure = explain_timeout("a", 60, use, watermark)

    assert failure.code is code
    assert "'a' was not ready within 60 s (SAGEMAKER_TFS_WAIT_TIME_SECONDS)" in failure.message


@pytest.mark.parametrize(
    ("percent", "watermark", "is_refused"),
    [(89, 90, False), (90, 90, False), (91, 90, True), (100, 99, True), (120, 100, False), (2, 1, True)],
)
def test_memory_beyond_the_watermark_is_refused(percent: int, watermark: int, is_refused: bool) -> None:
    refusal = refuse_full_memory("a", MemoryUse(percent * MB, 100 * MB), watermark)

    assert is_refused == (refusal is not None)
    if refusal is not None:
        assert refusal.code is Code.RESOURCE_EXHAUSTED
        assert f"{percent} of 100 MB are in use" in refusal.message
        assert f"PIERHEAD_MEMORY_WATERMARK_PERCENT={watermark}" in refusal.message


def test_memory_that_cannot_be_read_refuses_nothing() -> None:
    assert refuse_full_memory("a", None, 1) is None
