"""What happens at the limits of time and memory, seen from port 8080."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts import PASSING_THROUGH, artifact_with_hooks, model_for_the_stub
from running_stack import Answer, RunningStack, descendants, wait_for
from stub_binary import StubBinary

GUNICORN = "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS"
NGINX = "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS"
HOOKS = """
    import os
    import time


    def handler(data, context):
        action, _, value = data.read().decode().partition(" ")
        end = time.monotonic() + float(value or 0)
        if action == "sleep":
            time.sleep(float(value))
        while action == "compute" and time.monotonic() < end:
            pass
        while action == "stubborn" and time.monotonic() < end:
            try:
                while time.monotonic() < end:
                    pass
            except BaseException:
                pass
        if action == "eat":
            raise MemoryError
        if action == "die":
            os.kill(os.getpid(), 9)
        return f"{action} {os.getpid()}", "text/plain"
    """


@pytest.fixture(scope="module", params=["gevent", "gthread", "sync"])
def worker_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stack(
    worker_class: str,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("limits")
    artifact = artifact_with_hooks(folder, model_for_the_stub(folder), HOOKS)
    environ = StubBinary(folder / "stub").environ(
        SAGEMAKER_GUNICORN_WORKER_CLASS=worker_class,
        SAGEMAKER_GUNICORN_THREADS="2",
        **{GUNICORN: "1", NGINX: "5"},
    )
    with RunningStack(artifact, free_ports(9), **environ) as running:
        running.wait_until_ready()
        yield running


def only(worker_class: str, *names: str) -> None:
    if worker_class not in names:
        pytest.skip(f"a rule of {' and '.join(names)}")


def sole_worker(stack: RunningStack) -> int:
    """Return the only worker's pid, once every handover of the tests before is over."""
    master = stack.pid_of("handler-workers")
    wait_for(lambda: len(list(descendants(master))) == 1 and stack.ping() == 200, 40, lambda: stack.log)
    return worker_of(stack.invoke("echo"))


def worker_of(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    return int(answer.body.split()[-1])


def test_work_below_the_limit_is_left_alone(stack: RunningStack) -> None:
    worker = sole_worker(stack)

    assert worker == worker_of(stack.invoke("compute 0.8"))
    assert worker == worker_of(stack.invoke("echo"))


def test_a_request_that_holds_its_worker_is_ended_alone(stack: RunningStack, worker_class: str) -> None:
    only(worker_class, "gevent", "sync")
    worker = sole_worker(stack)
    others = ["sleep 1"] if worker_class == "gevent" else []

    with ThreadPoolExecutor(2) as pool:
        *finished, ended = pool.map(stack.invoke, [*others, "compute 30"])

    assert (504, "application/json") == (ended.status, ended.content_type)
    assert f"no answer within 1 s ({GUNICORN})" == ended.json()["error"]
    assert [worker] * len(others) == [worker_of(answer) for answer in finished]
    assert re.search(r"request ended: request=\w+ has held its worker .*inference\.py:\d+", stack.log)
    assert 200 == stack.ping()
    wait_for(lambda: worker not in descendants(stack.process.pid), 20, lambda: stack.log)


def test_a_request_that_does_not_let_go_is_answered_and_its_worker_killed(
    stack: RunningStack, worker_class: str
) -> None:
    only(worker_class, "gevent", "sync")
    worker = sole_worker(stack)

    ended = stack.invoke("stubborn 60")

    assert f"no answer within 1 s ({GUNICORN})" == ended.json()["error"], stack.log
    wait_for(lambda: f"worker {worker} was killed with its requests" in stack.log, 20, lambda: stack.log)
    assert f"handler worker {worker} was killed" not in stack.log
    assert worker != sole_worker(stack)


def test_a_sleeper_gets_504_and_its_worker_lives(stack: RunningStack, worker_class: str) -> None:
    only(worker_class, "gevent", "gthread")
    worker = sole_worker(stack)

    answer = stack.invoke("sleep 6")

    assert (504, "application/json") == (answer.status, answer.content_type)
    assert f"no answer within 5 s ({NGINX})" == answer.json()["error"]
    assert worker == worker_of(stack.invoke("echo"))


def test_a_worker_with_no_thread_left_is_replaced(stack: RunningStack, worker_class: str) -> None:
    only(worker_class, "gthread")
    worker = sole_worker(stack)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(stack.invoke, ["sleep 60"] * 2))

    assert [504, 504] == [answer.status for answer in answers]
    wait_for(lambda: f"worker {worker} is replaced: each of its threads" in stack.log, 20, lambda: stack.log)
    wait_for(lambda: worker not in descendants(stack.process.pid), 40, lambda: stack.log)
    assert worker != sole_worker(stack)


def test_want_of_memory_in_a_hook_is_500_and_its_worker_lives(stack: RunningStack) -> None:
    worker = sole_worker(stack)

    answer = stack.invoke("eat")

    assert (500, "application/json") == (answer.status, answer.content_type)
    assert worker == worker_of(stack.invoke("echo"))


def test_a_killed_worker_is_named_with_its_signal_and_replaced(stack: RunningStack) -> None:
    worker = sole_worker(stack)

    answer = stack.invoke("die")

    assert (502, "application/json") == (answer.status, answer.content_type)
    wait_for(lambda: f"worker {worker} was" in stack.log, 10, lambda: stack.log)
    assert worker != sole_worker(stack)
    lines = [line for line in stack.log.splitlines() if re.search(rf"\b{worker} was (killed|sent)", line)]
    assert 1 == len(lines), lines
    assert f"handler worker {worker} was killed by signal 9 (Killed), perhaps for want of memory" in lines[0]


@pytest.mark.parametrize("path", ["direct", "hooks"])
def test_a_model_that_runs_too_long_gets_the_same_504_on_both_paths(
    start_stack: Callable[..., RunningStack], tmp_path: Path, path: str
) -> None:
    artifact = model_for_the_stub(tmp_path)
    if path == "hooks":
        artifact = artifact_with_hooks(tmp_path, artifact, PASSING_THROUGH)
    limits = {GUNICORN: "1", NGINX: "1", "PIERHEAD_TIMEOUT_SECONDS": "3"}
    stub = StubBinary(tmp_path / "stub").environ(INPUT_DTYPE="DT_STRING")
    stack = start_stack(artifact, **stub, **limits)
    workers = set(descendants(stack.pid_of("handler-workers")))

    answer = stack.invoke('{"instances": ["DELAY=20"]}')

    assert (504, "application/json") == (answer.status, answer.content_type)
    assert {"error": "no answer within 3 s (PIERHEAD_TIMEOUT_SECONDS)"} == answer.json()
    assert workers == set(descendants(stack.pid_of("handler-workers")))
    assert 200 == stack.invoke('{"instances": ["at once"]}').status
