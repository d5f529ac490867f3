"""The stack stops gracefully, in bounded time, and leaves nothing behind (C30)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from bursts import broke_off, start_invocations
from field_stacks import DIRECT, HANDLER, PASSING_ON
from running_stack import CHECKOUT, RunningStack, StartStack, descendants, wait_for
from stub_binary import StubBinary
from test_life import is_alive

BODY = '{"instances": [1.0]}'


def start(
    start_stack: StartStack, stub: StubBinary, path: str, model: Path, folder: Path, **knobs: str
) -> RunningStack:
    artifact = artifact_with_hooks(folder, model, PASSING_ON) if path == HANDLER else model
    stub.forget()
    return start_stack(artifact, **stub.environ(**knobs))


def wait_for_arrivals(stub: StubBinary, count: int) -> None:
    wait_for(lambda: len(stub.predictions()) == count, 10)


def nothing_is_left(stack: RunningStack, family: list[int]) -> bool:
    return not any(is_alive(pid) for pid in family) and list(stack.run_folder.iterdir()) == []


@pytest.mark.parametrize("path", [DIRECT, HANDLER])
def test_what_is_in_flight_is_answered_and_nothing_new_is_taken(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path, stub: StubBinary, path: str
) -> None:
    stack = start(start_stack, stub, path, half_plus_two, tmp_path, DELAY="3")
    family = list(descendants(stack.process.pid))
    answers = start_invocations(stack, BODY, 4)
    wait_for_arrivals(stub, 4)
    began = time.monotonic()

    stack.process.send_signal(signal.SIGTERM)

    wait_for(lambda: stack.ping() == 0, 2, lambda: stack.log)
    assert stack.process.wait(10) == 0
    # Without other load it takes half a second more than the requests; the machine of the tests is shared.
    assert time.monotonic() - began < 3 + 4
    assert [answer.result(1).status for answer in answers] == [200] * 4
    assert nothing_is_left(stack, family)
    assert "Traceback" not in stack.log


def test_a_signal_before_the_supervisor_runs_ends_the_script(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text((CHECKOUT / "serve").read_text())
    script.chmod(0o755)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/checking-$1\nsleep 1\n")
    python.chmod(0o755)
    process = subprocess.Popen([str(script)], stdin=subprocess.DEVNULL)
    wait_for((tmp_path / "checking--c").exists, 10)

    process.send_signal(signal.SIGTERM)

    assert process.wait(10) == 0
    assert not (tmp_path / "checking--m").exists()


EARLY = """
import os, runpy, signal
from pierhead.supervisor.signals import hold_signals
hold_signals()
os.kill(os.getpid(), signal.SIGTERM)
runpy.run_module("pierhead.supervisor", run_name="__main__")
"""


def test_a_signal_while_the_supervisor_is_imported_is_kept(
    half_plus_two: Path, tmp_path: Path, free_ports: Callable[[int], int]
) -> None:
    (tmp_path / "model").symlink_to(half_plus_two)
    port = str(free_ports(1))
    environ = {**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path), "SAGEMAKER_BIND_TO_PORT": port}
    command = [sys.executable, "-c", EARLY]

    ended = subprocess.run(command, env=environ, timeout=60, capture_output=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert b"SIGTERM: stopping" in ended.stderr


def test_a_model_server_that_ignores_the_signal_is_killed_at_the_limit(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path, stub: StubBinary
) -> None:
    stack = start(start_stack, stub, DIRECT, half_plus_two, tmp_path, IGNORE_TERM="1", DELAY="1")
    family = list(descendants(stack.process.pid))
    answers = start_invocations(stack, BODY, 4)
    wait_for_arrivals(stub, 4)

    assert stack.stop(seconds=30) == 0
    assert [answer.result(1).status for answer in answers] == [200] * 4
    assert nothing_is_left(stack, family)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_during_the_start_a_signal_ends_it_at_once(
    start_stack: StartStack, half_plus_two: Path, stub: StubBinary, number: int
) -> None:
    starts = len(stub.starts())
    stack = start_stack(half_plus_two, wait=False, **stub.environ(READY_AFTER="60"))
    wait_for(lambda: len(stub.starts()) > starts, 20, lambda: stack.log)
    family = list(descendants(stack.process.pid))

    assert stack.stop(number, seconds=3) == 0
    assert nothing_is_left(stack, family)


def test_a_second_signal_ends_everything_at_once(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path, stub: StubBinary
) -> None:
    stack = start(start_stack, stub, HANDLER, half_plus_two, tmp_path, DELAY="20")
    family = list(descendants(stack.process.pid))
    answers = start_invocations(stack, BODY, 2)
    wait_for_arrivals(stub, 2)

    stack.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "SIGTERM: stopping" in stack.log, 5)

    assert stack.stop(seconds=3) == 0
    assert all(broke_off(answer) for answer in answers)
    assert nothing_is_left(stack, family)


def test_the_entry_point_becomes_the_supervisor(
    start_stack: StartStack, half_plus_two: Path, stub: StubBinary
) -> None:
    stack = start_stack(half_plus_two, **stub.environ())

    command = Path(f"/proc/{stack.process.pid}/cmdline").read_bytes().split(b"\0")

    assert b"pierhead.supervisor" in command
