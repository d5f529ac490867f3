"""Ready means ready (C25), and health is told at once however busy everything is."""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from bursts import invoke_all, start_invocations
from field_stacks import DIRECT, HANDLER, PASSING_ON
from running_stack import RunningStack, StartStack, wait_for
from stub_binary import StubBinary

BODY = '{"instances": [1.0, 2.0, 5.0]}'
RIGHT = {"predictions": [2.5, 3.0, 4.5]}
BUSY = """
    import time


    def handler(data, context):
        end = time.monotonic() + float(data.read())
        while time.monotonic() < end:
            pass
        return '"done"', "application/json"
    """


def pings_until_ready(stack: RunningStack, seconds: float) -> list[int]:
    statuses: list[int] = []

    def is_ready() -> bool:
        statuses.append(stack.ping())
        return statuses[-1] == 200

    wait_for(is_ready, seconds, lambda: stack.log)
    return statuses


def artifact_for(path: str, model: Path, folder: Path) -> Path:
    return artifact_with_hooks(folder, model, PASSING_ON) if path == HANDLER else model


@pytest.mark.parametrize(
    ("path", "count", "knobs"),
    [
        (DIRECT, "1", {}),
        (HANDLER, "3", {}),
        (DIRECT, "3", {"LISTEN_EARLY": "1"}),
        (HANDLER, "1", {"LISTEN_EARLY": "1"}),
    ],
)
def test_the_first_requests_after_the_first_200_are_served(
    start_stack: StartStack,
    half_plus_two: Path,
    tmp_path: Path,
    stub: StubBinary,
    path: str,
    count: str,
    knobs: dict[str, str],
) -> None:
    artifact = artifact_for(path, half_plus_two, tmp_path)
    environ = stub.environ(READY_AFTER="2", SAGEMAKER_TFS_INSTANCE_COUNT=count, **knobs)
    stack = start_stack(artifact, wait=False, **environ)

    before = pings_until_ready(stack, 30)
    answers = invoke_all(stack, BODY, 50)

    assert set(before) <= {0, 503, 200}
    assert [(200, RIGHT)] * 50 == [(answer.status, answer.json()) for answer in answers]
    assert "[error]" not in stack.log
    assert " ERROR " not in stack.log


def test_the_embedded_servers_are_ready_at_the_first_200(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    artifact = artifact_for(HANDLER, half_plus_two, tmp_path)
    stack = start_stack(artifact, wait=False, SAGEMAKER_TFS_INSTANCE_COUNT="3")

    before = pings_until_ready(stack, 60)
    answers = invoke_all(stack, BODY, 50)

    assert set(before) <= {0, 503, 200}
    assert [(200, RIGHT)] * 50 == [(answer.status, answer.json()) for answer in answers]


@pytest.mark.parametrize("knobs", [{}, {"LISTEN_EARLY": "1"}], ids=["refusing", "loading"])
def test_a_model_that_is_never_ready_ends_the_start_and_is_named(
    start_stack: StartStack, half_plus_two: Path, stub: StubBinary, knobs: dict[str, str]
) -> None:
    environ = stub.environ(READY_AFTER="60", SAGEMAKER_TFS_WAIT_TIME_SECONDS="2", **knobs)
    stack = start_stack(half_plus_two, wait=False, **environ)

    assert stack.process.wait(10) == 1
    (reason,) = [line for line in stack.log.splitlines() if "cannot go on" in line]
    assert "half_plus_two" in reason
    assert "was not ready within 2 s (SAGEMAKER_TFS_WAIT_TIME_SECONDS" in reason
    assert "Traceback" not in stack.log


def test_a_model_server_that_cannot_load_ends_the_start_with_its_own_words(
    start_stack: StartStack, half_plus_two: Path, stub: StubBinary
) -> None:
    stack = start_stack(half_plus_two, wait=False, **stub.environ(EXIT_AT_LOAD="no memory left"))

    assert stack.process.wait(10) == 1
    assert "no memory left" in stack.log
    assert "model-server-1 ended with status 1 before it was ready" in stack.log


def ping_seconds(stack: RunningStack) -> float:
    start = time.perf_counter()
    assert stack.ping() == 200
    return time.perf_counter() - start


def test_ping_is_answered_at_once_while_all_workers_compute(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path, stub: StubBinary
) -> None:
    stack = start_stack(artifact_with_hooks(tmp_path, half_plus_two, BUSY), **stub.environ())
    answers = start_invocations(stack, "2", 2)

    seconds = [ping_seconds(stack) for _ in range(50)]

    assert [answer.result(60).status for answer in answers] == [200, 200]
    assert statistics.median(seconds) < 0.1


@pytest.mark.parametrize("path", [DIRECT, HANDLER])
def test_ping_is_answered_at_once_while_the_model_server_is_busy_and_after_it_was_killed(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path, stub: StubBinary, path: str
) -> None:
    artifact = artifact_for(path, half_plus_two, tmp_path)
    stack = start_stack(artifact, **stub.environ(DELAY="1.5"))
    answers = start_invocations(stack, BODY, 20)

    seconds = [ping_seconds(stack) for _ in range(50)]

    assert {answer.result(60).status for answer in answers} == {200}
    assert statistics.median(seconds) < 0.1

    pid = stack.pid_of("model-server-1")
    os.kill(pid, signal.SIGKILL)

    wait_for(lambda: stack.pid_of("model-server-1") != pid, 20, lambda: stack.log)
    wait_for(lambda: stack.ping() == 200, 5, lambda: stack.log)
    assert stack.invoke(BODY).json() == RIGHT
