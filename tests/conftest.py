"""What every test may use: real models, built once a run, and free ports."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from running_stack import RunningStack, StartStack

CHECKOUT = Path(__file__).resolve().parents[1]
FIRST_PORT = 20_000
LAST_PORT = 32_000  # the system hands out those above for outgoing connections
PORTS_FOR_EACH = 1_500


@pytest.fixture(autouse=True, scope="session")
def heed_signals() -> None:
    """Ignore no signal: a run in the background does, and so would all that its tests start."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings of whoever runs the tests out of them."""
    for name in os.environ:
        if name.startswith(("SAGEMAKER_", "PIERHEAD_", "TF_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def example_artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that builds an example's artifact, once for all processes of the run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def build(name: str) -> Path:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            command = [sys.executable, str(CHECKOUT / "examples" / name / "build.py"), str(shared / name)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=150)
        return shared / name

    return build


@pytest.fixture(scope="session")
def half_plus_two(example_artifact: Callable[[str], Path]) -> Path:
    """Return the artifact of half_plus_two: y = x / 2 + 2."""
    return example_artifact("half_plus_two")


@pytest.fixture
def start_stack(free_ports: Callable[[int], int]) -> Iterator[StartStack]:
    """Return a function that starts `./serve` on an artifact; what it started is stopped in the end."""
    stacks: list[RunningStack] = []

    def start(artifact: Path, *, wait: bool = True, **environ: str) -> RunningStack:
        stack = RunningStack(artifact, free_ports(9), **environ)
        stacks.append(stack)
        if wait:
            stack.wait_until_ready()
        return stack

    yield start
    for stack in stacks:
        stack.close()


@pytest.fixture(scope="session")
def free_ports() -> Iterator[Callable[[int], int]]:
    """Yield a function that hands out the first of `count` free ports in a row, never one twice.

    Each process of a run has a block of ports to itself, so that runs side by side never meet at one.
    """
    first, claim = _claim_block()
    ports = _free_ports(first)

    def take(count: int) -> int:
        row = [next(ports)]
        while len(row) < count:
            port = next(ports)
            row = [*row, port] if port == row[-1] + 1 else [port]
        return row[0]

    yield take
    claim.close()


def _claim_block() -> tuple[int, IO[str]]:
    """Return the first port of a block that nobody else uses, and the locked file that says so."""
    folder = Path(tempfile.gettempdir()) / "pierhead-test-ports"
    folder.mkdir(exist_ok=True)
    for first in range(FIRST_PORT, LAST_PORT, PORTS_FOR_EACH):
        claim = (folder / str(first)).open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            continue
        return first, claim
    raise RuntimeError("too many test runs at once: no block of ports is free")


def _free_ports(first: int) -> Iterator[int]:
    for port in range(first, first + PORTS_FOR_EACH):
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        yield port
