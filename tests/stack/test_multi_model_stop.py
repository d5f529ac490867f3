"""A multi-model endpoint is stopped while models are loaded, invoked and being loaded: all are answered."""

from __future__ import annotations

import http.client
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.processes import family

from artifacts import artifact_with_hooks, stub_model
from field_stacks import EMBEDDED, STUB
from multi_model_stack import RESULT, ModelsStack, begin, refusal
from running_stack import Answer, wait_for
from stub_binary import StubBinary
from test_life import is_alive

SLOW_BODY = '{"instances": ["DELAY=2"]}'
WAITING = """
    import time
    from pathlib import Path


    def handler(data, context):
        gate = Path(data.read().decode())
        print("arrived", flush=True)
        while not gate.exists():
            time.sleep(0.01)
        return "answered", "text/plain"
    """


@pytest.fixture(params=[EMBEDDED, STUB])
def stack(
    request: pytest.FixtureRequest, free_ports: Callable[[int], int], tmp_path: Path
) -> Iterator[ModelsStack]:
    stub = StubBinary(tmp_path / "stub") if request.param == STUB else None
    with ModelsStack(free_ports(31), stub) as running:
        running.wait_until_ready()
        yield running


def answers_until_gone(stack: ModelsStack, name: str) -> Iterator[Answer]:
    """Yield the answers of a model until nobody takes a connection any more."""
    while True:
        try:
            yield stack.invoke_model(name)
        except (OSError, http.client.HTTPException):
            return


def nothing_is_left(stack: ModelsStack, processes: list[int]) -> bool:
    return not any(is_alive(pid) for pid in processes) and list(stack.run_folder.iterdir()) == []


def test_what_is_in_flight_is_answered_and_nothing_is_left(
    stack: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    stack.load_new("quick", half_plus_two)
    stack.load_new("own", artifact_with_hooks(tmp_path, half_plus_two, WAITING))
    in_flight = [begin(stack.invoke_model, "own", str(gate)) for _ in range(3)]
    wait_for(lambda: stack.log.count("arrived") == 3, 20, lambda: stack.log)
    slow = []
    if stack.stub is not None:
        stack.load_new("slow", stub_model(tmp_path / "slow", INPUT_DTYPE="DT_STRING"))
        stack.stub.forget()
        slow = [begin(stack.invoke_model, "slow", SLOW_BODY) for _ in range(3)]
        wait_for(lambda: stack.stub is not None and len(stack.stub.predictions()) == 3, 10)
    processes = family(stack.process.pid)
    begun = time.monotonic()

    stack.process.send_signal(signal.SIGTERM)
    meanwhile = list(answers_until_gone(stack, "quick"))
    gate.touch()

    assert 0 == stack.process.wait(20), stack.log
    assert time.monotonic() - begun < 12
    assert [(200, b"answered")] * 3 == [(each.result(1).status, each.result().body) for each in in_flight]
    assert [(200, {"predictions": ["DELAY=2"]})] * len(slow) == [
        (each.result(1).status, each.result().json()) for each in slow
    ]
    assert [RESULT] * len(meanwhile) == [answer.json() for answer in meanwhile]
    assert nothing_is_left(stack, processes)
    assert "Traceback" not in stack.log


def test_a_load_that_is_under_way_does_not_delay_the_stop(
    free_ports: Callable[[int], int], tmp_path: Path
) -> None:
    with ModelsStack(free_ports(31), StubBinary(tmp_path / "stub")) as stack:
        stack.wait_until_ready()
        stack.lay("never", stub_model(tmp_path / "never", READY_WHEN="/not/there"))
        loaded = begin(stack.load, "never")
        wait_for(lambda: "never/model-server-1: STUB" in stack.log, 20, lambda: stack.log)
        processes = family(stack.process.pid)

        assert 0 == stack.stop(seconds=10), stack.log
        assert 503 == refusal(loaded.result(5))[0]
        assert nothing_is_left(stack, processes)
        assert "Traceback" not in stack.log


def test_nothing_outlives_a_supervisor_that_is_killed(
    free_ports: Callable[[int], int], tmp_path: Path
) -> None:
    with ModelsStack(free_ports(31), StubBinary(tmp_path / "stub")) as stack:
        stack.wait_until_ready()
        model = stub_model(tmp_path / "model")
        stack.load_new("shared", model)
        stack.load_new("own", artifact_with_hooks(tmp_path, model, WAITING))
        processes = family(stack.process.pid)

        stack.process.kill()

        stack.process.wait(5)
        wait_for(lambda: not any(is_alive(pid) for pid in processes), 10)
