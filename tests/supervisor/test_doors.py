"""The supervisor's two sockets: /ping and the reports of handler workers."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from pierhead.control import Accepted, WorkerGone, WorkerReady, encode, send
from pierhead.errors import ControlError
from pierhead.supervisor.doors import ControlDoor, HealthDoor
from pierhead.supervisor.events import FromWorker


class Readiness:
    """What is not ready, as a test says it."""

    reason = ""

    def __call__(self) -> str:
        return self.reason


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """To close a door takes half a second, so the tests share two."""
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared_readiness() -> Readiness:
    return Readiness()


@pytest.fixture
def readiness(shared_readiness: Readiness) -> Iterator[Readiness]:
    yield shared_readiness
    shared_readiness.reason = ""


@pytest.fixture(scope="module")
def health(folder: Path, shared_readiness: Readiness) -> Iterator[Path]:
    path = folder / "health.sock"
    door = HealthDoor(path, shared_readiness)
    door.open()
    yield path
    door.close()


@pytest.fixture(scope="module")
def shared_reports() -> SimpleQueue[FromWorker]:
    return SimpleQueue()


@pytest.fixture
def reports(shared_reports: SimpleQueue[FromWorker]) -> Iterator[SimpleQueue[FromWorker]]:
    yield shared_reports
    while not shared_reports.empty():
        shared_reports.get()


@pytest.fixture(scope="module")
def control(folder: Path, shared_reports: SimpleQueue[FromWorker]) -> Iterator[Path]:
    path = folder / "control.sock"
    door = ControlDoor(path, shared_reports.put)
    door.open()
    yield path
    door.close()


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(str(path))
    return connection


def ask(connection: socket.socket, method: str = "GET") -> http.client.HTTPResponse:
    connection.sendall(f"{method} /ping HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    return response


def test_ping_of_a_ready_stack_is_empty(health: Path) -> None:
    with connect(health) as connection, contextlib.closing(ask(connection)) as response:
        assert (response.status, response.read()) == (200, b"")
        assert response.headers["Content-Length"] == "0"


def test_ping_of_a_stack_that_is_not_ready_says_why_as_json(health: Path, readiness: Readiness) -> None:
    readiness.reason = 'nginx is "starting"'

    with connect(health) as connection, contextlib.closing(ask(connection)) as response:
        assert response.status == 503
        assert response.headers["Content-Type"] == "application/json"
        assert json.loads(response.read()) == {"error": 'not ready: nginx is "starting"'}


@pytest.mark.parametrize(("reason", "status"), [("", 200), ("nginx is starting", 503)])
def test_head_is_answered_without_a_body(
    reason: str, status: int, health: Path, readiness: Readiness
) -> None:
    readiness.reason = reason

    with connect(health) as connection:
        with contextlib.closing(ask(connection, "HEAD")) as response:
            assert status == response.status
        with contextlib.closing(ask(connection)) as response:
            assert status == response.status


def test_connection_serves_many_pings_and_each_sees_the_present(health: Path, readiness: Readiness) -> None:
    statuses = []
    with connect(health) as connection:
        for reason in ("starting", "", "stopping"):
            readiness.reason = reason
            with contextlib.closing(ask(connection)) as response:
                response.read()
                statuses.append(response.status)

    assert statuses == [503, 200, 503]


def test_slow_client_does_not_block_others(health: Path) -> None:
    with connect(health) as slow, connect(health) as connection:
        slow.sendall(b"GET /pi")
        with contextlib.closing(ask(connection)) as response:
            assert response.status == 200


def test_client_that_leaves_in_the_middle_does_no_harm(
    health: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        with connect(health) as connection:
            connection.sendall(b"GET /ping HT")

    with connect(health) as connection, contextlib.closing(ask(connection)) as response:
        assert response.status == 200
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(timeout=10)
    assert "Traceback" not in capfd.readouterr().err


def test_reports_arrive_in_order_and_are_accepted(control: Path, reports: SimpleQueue[FromWorker]) -> None:
    answers = [send(str(control), WorkerReady(1)), send(str(control), WorkerGone(1))]

    assert [Accepted(), Accepted()] == answers
    assert FromWorker(WorkerReady(1)) == reports.get(timeout=5)
    assert FromWorker(WorkerGone(1)) == reports.get(timeout=5)


@pytest.mark.parametrize(
    "junk", [b"hello\n", b"\xff\n", b"\n", b"{}\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 5000 + b"\n"]
)
def test_junk_is_neither_reported_nor_the_end_of_the_door(
    junk: bytes, control: Path, reports: SimpleQueue[FromWorker], capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(control) as connection:
        connection.sendall(junk)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""

    assert Accepted() == send(str(control), WorkerReady(2))
    assert FromWorker(WorkerReady(2)) == reports.get(timeout=5)
    with pytest.raises(Empty):
        reports.get_nowait()
    assert "Traceback" not in capfd.readouterr().err


def test_silent_client_of_the_control_door_does_not_block_others(
    control: Path, reports: SimpleQueue[FromWorker]
) -> None:
    with connect(control) as silent:
        silent.sendall(encode(WorkerReady(1))[:-5])
        assert Accepted() == send(str(control), WorkerReady(2))
        assert FromWorker(WorkerReady(2)) == reports.get(timeout=5)


def test_doors_admit_whom_they_should(health: Path, control: Path) -> None:
    assert stat.S_IMODE(health.stat().st_mode) == 0o666
    assert stat.S_IMODE(control.stat().st_mode) == 0o600


@pytest.mark.parametrize("make", [lambda path: ControlDoor(path, print), lambda path: HealthDoor(path, str)])
def test_socket_is_gone_after_the_close(
    make: Callable[[Path], ControlDoor | HealthDoor], short_folder: Path
) -> None:
    path = short_folder / "door.sock"
    door = make(path)
    door.open()

    door.close()

    assert not path.exists()
    with pytest.raises(ControlError):
        send(str(path), WorkerReady(1))


def test_socket_of_a_killed_stack_is_replaced(short_folder: Path) -> None:
    path = short_folder / "health.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    door = HealthDoor(path, lambda: "")
    door.open()
    try:
        with connect(path) as connection, contextlib.closing(ask(connection)) as response:
            assert response.status == 200
    finally:
        door.close()
