"""What every test may use: real models, built once a run, and free ports."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from running_stack import RunningStack, StartStack

CHECKOUT = Path(__file__).resolve().parents[1]
FIRST_PORT = 20_000
PORTS_FOR_EACH = 2_000


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
def free_ports() -> Callable[[int], int]:
    """Return a function that hands out the first of `count` free ports in a row, never one twice."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = _free_ports(FIRST_PORT + worker * PORTS_FOR_EACH)

    def take(count: int) -> int:
        row = [next(ports)]
        while len(row) < count:
            port = next(ports)
            row = [*row, port] if port == row[-1] + 1 else [port]
        return row[0]

    return take


def _free_ports(first: int) -> Iterator[int]:
    for port in range(first, first + PORTS_FOR_EACH):
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        yield port
