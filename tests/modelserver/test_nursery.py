"""The nursery: TensorFlow imported once, servers forked from it, each a child of the supervisor."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest
import requests
from tests.modelserver.running_server import is_answering, wait_until

from pierhead.control import (
    Accepted,
    Forked,
    ForkServer,
    Message,
    NurseryReady,
    StartFailed,
    decode,
    encode,
)
from pierhead.errors import Code

PR_SET_CHILD_SUBREAPER = 36
PRIVATE_MEGABYTES = 30
SPARE_BYTES = 50_000_000


@dataclass
class Nursery:
    process: subprocess.Popen[bytes]
    connection: socket.socket
    lines: BinaryIO

    def read(self) -> Message:
        return decode(self.lines.readline())

    def fork(self, name: str, *arguments: str) -> int:
        self.connection.sendall(encode(ForkServer(name, arguments)))
        answer = self.read()
        assert isinstance(answer, Forked)
        assert answer.name == name
        return answer.pid


@pytest.fixture
def adopting() -> Iterator[list[int]]:
    """Make this process the parent of orphans below it; end those whose pids a test adds to the list."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "pierhead.modelserver", f"--nursery={theirs.fileno()}"],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    theirs.close()
    with ours, ours.makefile("rb") as lines:
        yield Nursery(process, ours, lines)
    process.terminate()
    process.wait(30)


def private_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_servers_are_forked_for_the_supervisor(
    nursery: Nursery, adopting: list[int], half_model: Path, free_ports: Callable[[int], int]
) -> None:
    assert nursery.read() == NurseryReady()
    assert os.listdir(f"/proc/{nursery.process.pid}/task") == [str(nursery.process.pid)]

    ports = [free_ports(2), free_ports(2)]
    model = ["--model_name=half", f"--model_base_path={half_model}", "--bind_address=127.0.0.1"]
    for port in ports:
        adopting.append(nursery.fork(f"half-{port}", f"--port={port}", f"--rest_api_port={port + 1}", *model))

    for pid, port in zip(adopting, ports, strict=True):
        url = f"http://127.0.0.1:{port + 1}/v1/models/half"
        wait_until(lambda url=url: is_answering(url))  # type: ignore[misc]
        answer = requests.post(f"{url}:predict", b'{"instances": [1]}', timeout=30)

        assert answer.json() == {"predictions": [2.5]}
        assert (parent_of(pid), os.getpgid(pid)) == (os.getpid(), pid)
        assert private_megabytes(pid) < PRIVATE_MEGABYTES

    nursery.connection.shutdown(socket.SHUT_RDWR)
    assert nursery.process.wait(30) == 0
    for pid in adopting:
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_server_that_cannot_start_says_why_ends_with_255_and_the_nursery_goes_on(
    nursery: Nursery, adopting: list[int], tmp_path: Path
) -> None:
    assert nursery.read() == NurseryReady()
    path = str(tmp_path / "control.sock")
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(path)
        supervisor.listen()
        supervisor.settimeout(30)
        for name in ("m/model-server-1", "m/model-server-2"):
            flags = [f"--model_base_path={tmp_path}/nothing", "--model_name=m", "--port=1"]
            pid = nursery.fork("broken", *flags, f"--supervisor_socket={path}", f"--process_name={name}")
            connection, _ = supervisor.accept()
            with connection, connection.makefile("rb") as lines:
                message = decode(lines.readline())
                connection.sendall(encode(Accepted()))

            reason = "'m' (NOT_FOUND) could not be loaded; the log says why"
            assert message == StartFailed(name, Code.UNKNOWN, reason)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 255


def test_server_of_a_model_answers_invocations_on_its_socket_alone(
    nursery: Nursery, adopting: list[int], half_model: Path, free_ports: Callable[[int], int], tmp_path: Path
) -> None:
    assert nursery.read() == NurseryReady()
    path, port = tmp_path / "rest.sock", free_ports(1)
    model = ["--model_name=half", f"--model_base_path={half_model}", "--bind_address=127.0.0.1"]
    route = [f"--rest_api_socket_path={path}", "--invocations_model=half", f"--port={port}"]
    adopting.append(nursery.fork("half", *route, *model))
    wait_until(path.exists)
    document = b'{"instances": [1.0]}'
    head = b"POST /invocations HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 20\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answer:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(head + document)

        assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
        assert b"2.5" in answer.read()

    os.kill(adopting[0], signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(adopting[0], 0)[1]) == 0
    assert not path.exists()


def test_server_that_runs_out_of_memory_or_aborts_takes_nobody_along(
    nursery: Nursery, adopting: list[int], half_model: Path, free_ports: Callable[[int], int]
) -> None:
    assert nursery.read() == NurseryReady()
    model = ["--model_name=half", f"--model_base_path={half_model}", "--bind_address=127.0.0.1"]

    def fork(port: int) -> int:
        adopting.append(nursery.fork("half", f"--port={port}", f"--rest_api_port={port + 1}", *model))
        wait_until(lambda: is_answering(f"http://127.0.0.1:{port + 1}/v1/models/half"))
        return adopting[-1]

    def predict(port: int) -> dict[str, list[float]]:
        url = f"http://127.0.0.1:{port + 1}/v1/models/half:predict"
        document: dict[str, list[float]] = requests.post(url, b'{"instances": [1]}', timeout=30).json()
        return document

    lost, other = free_ports(2), free_ports(2)
    victim = fork(lost)
    fork(other)
    size = int(Path(f"/proc/{victim}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.prlimit(victim, resource.RLIMIT_AS, (size + SPARE_BYTES, size + SPARE_BYTES))
    with suppress(requests.ConnectionError):
        body = b'{"instances": [' + b"1," * 20_000_000 + b"1]}"
        url = f"http://127.0.0.1:{lost + 1}/v1/models/half:predict"
        assert requests.post(url, body, timeout=60).status_code != 200
    assert predict(other) == {"predictions": [2.5]}

    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGABRT)
    assert os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]) != 0
    adopting.remove(victim)
    assert predict(other) == {"predictions": [2.5]}

    fork(lost)
    assert predict(lost) == {"predictions": [2.5]}
