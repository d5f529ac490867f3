"""Model servers in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

START_SECONDS = 90.0
COMMAND = [sys.executable, "-m", "pierhead.modelserver"]


@dataclass(frozen=True)
class RunningServer:
    """A model server that answers, and its two ports."""

    process: subprocess.Popen[bytes]
    grpc_port: int
    rest_port: int

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.rest_port}{path}"


@contextmanager
def running_server(
    first_port: int, folder: Path, *flags: str, known: str = "/v1/models/half"
) -> Iterator[RunningServer]:
    """Start a server that serves the versions below a folder as `half`; stop it afterwards.

    It has started when a GET of `known` succeeds.
    """
    ports = [f"--port={first_port}", f"--rest_api_port={first_port + 1}", "--bind_address=127.0.0.1"]
    model = ["--model_name=half", f"--model_base_path={folder}"]
    process = subprocess.Popen([*COMMAND, *ports, *model, *flags], stderr=subprocess.PIPE)
    server = RunningServer(process, first_port, first_port + 1)
    try:
        wait_until(lambda: is_answering(server.url(known)) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=30)


def run_to_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected to end by itself."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=START_SECONDS, check=False
    )


def is_answering(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.ConnectionError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Return as soon as the condition holds; fail when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
