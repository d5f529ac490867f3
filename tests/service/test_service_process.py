"""The real program, as the supervisor starts it, before a fake model server and a fake supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from tests.service.service_fakes import FakeModelServer, make_plan, new_fake, running
from tests.service.service_program import (
    SECONDS,
    FakeSupervisor,
    Service,
    UnixConnection,
    running_program,
    supervising,
)

from pierhead.control import ServerAddress, WorkerGone, WorkerReady

BODY = b'{"instances": [1.0, 2.0, 5.0]}'
PAIR = """
import logging, sys, grpc
import beside

print("printed at import")
logging.info("logged at import")

def input_handler(data, context):
    return data.read()

def output_handler(response, context):
    assert "tensorflow" not in sys.modules
    grpc.channel_ready_future(context.channel).result(timeout=5)
    return response.content, beside.TYPE
"""
SLOW = """
import threading, time
from pathlib import Path

def handler(data, context):
    Path(data.read().decode()).touch()
    time.sleep(1.5)
    return "done", "text/plain"
"""
CLASSES = ("gevent", "gthread", "sync")


@pytest.fixture(scope="module")
def fake() -> FakeModelServer:
    return new_fake()


@pytest.fixture(scope="module")
def address(fake: FakeModelServer) -> Iterator[ServerAddress]:
    with running(fake) as address:
        yield address


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[FakeSupervisor]:
    with supervising(tmp_path / "control.sock") as fake:
        yield fake


Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path, address: ServerAddress, supervisor: FakeSupervisor) -> Start:
    @contextmanager
    def start_service(hooks: str | None = None, *, arguments: str = "", **settings: str) -> Iterator[Service]:
        code = tmp_path / "code"
        code.mkdir()
        (code / "beside.py").write_text("TYPE = 'application/json'\n")
        if hooks is not None:
            (code / "inference.py").write_text(hooks)
        run = tmp_path / "run"
        run.mkdir()
        plan = make_plan(
            servers=(address,),
            settings={"GUNICORN_CMD_ARGS": arguments, **settings},
            socket=str(run / "handler.sock"),
            control_socket=supervisor.path,
            code=str(code) if hooks is not None else None,
            hooks=str(code / "inference.py") if hooks is not None else None,
        )
        with running_program(plan, run, supervisor, tmp_path / "log") as service:
            yield service

    return start_service


def idle_connection(service: Service) -> UnixConnection:
    connection = UnixConnection(service.socket)
    connection.request("GET", "/ping")
    connection.getresponse().read()
    return connection


def test_worker_reports_itself_and_serves(start: Start, tmp_path: Path) -> None:
    with start(PAIR) as service:
        pid = service.ready()
        status, body = service.post(BODY)
        kept = idle_connection(service)

        assert (status, json.loads(body)) == (200, {"predictions": [2.5, 3.0, 4.5]})
        assert stat.S_IMODE(os.stat(service.socket).st_mode) == 0o777
        assert service.log.read_text().count("printed at import") == 1
        assert service.log.read_text().count("logged at import") == 1
        assert service.stop() == 0
        kept.close()

        assert WorkerGone(pid) == service.supervisor.reports.get(timeout=SECONDS)
        assert "Traceback" not in service.log.read_text()
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"plan.json", "log", "inference.py", "beside.py"} == written


def test_worker_owns_less_than_80_megabytes(start: Start) -> None:
    with start(PAIR) as service:
        pid = service.ready()
        service.post(BODY)

        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        assert private < 80_000


def test_default_handler_serves_without_hooks(start: Start) -> None:
    with start() as service:
        service.ready()
        status, body = service.post(b"1.0,2.0,5.0", **{"Content-Type": "text/csv"})

        assert (status, json.loads(body)) == (200, {"predictions": [[2.5, 3.0, 4.5]]})
        assert service.stop() == 0


def test_termination_lets_requests_end(start: Start, tmp_path: Path) -> None:
    with start(SLOW) as service:
        service.ready()
        answers: Queue[tuple[int, bytes]] = Queue()
        seen = [tmp_path / f"seen{number}" for number in range(4)]
        for path in seen:
            threading.Thread(target=lambda path=path: answers.put(service.post(str(path).encode()))).start()
        deadline = threading.Event()
        while not all(path.exists() for path in seen):
            deadline.wait(0.01)

        assert service.stop() == 0
        assert [answers.get(timeout=SECONDS) for _ in seen] == [(200, b"done")] * 4


def test_calls_of_one_worker_run_side_by_side(start: Start, fake: FakeModelServer) -> None:
    with start(PAIR) as service:
        service.ready()
        service.post(BODY)
        fake.together = threading.Barrier(20, timeout=SECONDS)
        answers: Queue[int] = Queue()
        threads = [threading.Thread(target=lambda: answers.put(service.post(BODY)[0])) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        fake.together = None

        assert [answers.get(timeout=SECONDS) for _ in threads] == [200] * 20


def test_worker_that_dies_is_reported_and_replaced(start: Start) -> None:
    with start(PAIR) as service:
        first = service.ready()
        os.kill(first, signal.SIGKILL)

        assert WorkerGone(first, signal.SIGKILL) == service.supervisor.reports.get(timeout=SECONDS)
        assert service.ready() != first
        assert service.post(BODY)[0] == 200


def test_threads_of_hooks_that_cannot_be_loaded_do_not_hide_the_failure(start: Start) -> None:
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, args=(50,)).start()\n"
    hooks = thread + "import not_there\n"
    with start(hooks, SAGEMAKER_GUNICORN_WORKER_CLASS="gthread") as service:
        assert service.process.wait(SECONDS) == 4
        assert service.log.read_text().count("Booting worker") == 1


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        ("import not_there\n", "No module named 'not_there'"),
        ("def handler(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("x = 1\n", "inference.py defines no hooks"),
    ],
)
def test_hooks_that_cannot_be_loaded_end_the_program_with_one_reason(
    start: Start, hooks: str, sentence: str
) -> None:
    with start(hooks, SAGEMAKER_GUNICORN_WORKERS="2") as service:
        assert service.process.wait(SECONDS) == 4
        log = service.log.read_text()

        assert len(re.findall("ERROR .*: inference.py", log)) == 1
        assert sentence in log
        assert log.count("Traceback") <= 1
        assert not any(isinstance(report, WorkerReady) for report in service.supervisor.reports.queue)


def test_recycled_worker_makes_way_in_spite_of_idle_connections(start: Start) -> None:
    with start(PAIR, arguments="--max-requests=10") as service:
        service.ready()
        kept = idle_connection(service)

        assert [service.post(BODY)[0] for _ in range(25)] == [200] * 25
        kept.close()
        assert service.stop() == 0


def exchange(service: Service, request: bytes) -> bytes:
    """Send bytes as they are, and return all that comes back until the end of the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        connection.connect(service.socket)
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize("worker_class", CLASSES)
def test_errors_of_gunicorn_are_json_and_nginx_decides_what_is_too_large(
    start: Start, worker_class: str
) -> None:
    fields = b"".join(b"X-Field-%d: x\r\n" % number for number in range(300))
    line = b"GET /ping?" + 8000 * b"q" + b" HTTP/1.1\r\nHost: x\r\n"
    with start(PAIR, SAGEMAKER_GUNICORN_WORKER_CLASS=worker_class) as service:
        service.ready()
        garbage = exchange(service, b"GARBAGE\r\n\r\n")
        version = exchange(service, b"GET /ping HTTP/7.0\r\nHost: x\r\n\r\n")
        large = exchange(service, line + fields + b"X-Large: " + 40_000 * b"x" + b"\r\n\r\n")

    for answer in (garbage, version):
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"Content-Type: application/json" in head
        assert {"error": "the request is not valid HTTP"} == json.loads(body)
    assert large.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("worker_class", CLASSES)
def test_a_body_that_nobody_reads_does_not_spoil_the_answer(start: Start, worker_class: str) -> None:
    body = bytes(5 << 20)
    request = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with start(PAIR, SAGEMAKER_GUNICORN_WORKER_CLASS=worker_class) as service:
        service.ready()

        assert exchange(service, request).startswith(b"HTTP/1.1 404 ")


def test_a_slow_import_is_not_taken_for_a_stuck_request(start: Start) -> None:
    hooks = "import time\ntime.sleep(6)\n" + PAIR
    with start(hooks, SAGEMAKER_GUNICORN_TIMEOUT_SECONDS="1") as service:
        service.ready()

        assert service.post(BODY)[0] == 200
        assert service.supervisor.reports.empty()
        assert "is replaced" not in service.log.read_text()


@pytest.mark.parametrize("worker_class", CLASSES)
def test_threads_of_hooks_do_not_hold_the_exit(start: Start, worker_class: str) -> None:
    hooks = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n" + PAIR
    with start(hooks, SAGEMAKER_GUNICORN_WORKER_CLASS=worker_class) as service:
        pid = service.ready()
        begun = time.monotonic()

        assert 0 == service.stop()
        assert time.monotonic() - begun < 7
        assert WorkerGone(pid) == service.supervisor.reports.get(timeout=SECONDS)


@pytest.mark.parametrize("worker_class", ["gthread", "sync"])
def test_other_worker_classes_serve(start: Start, worker_class: str) -> None:
    with start(PAIR, SAGEMAKER_GUNICORN_WORKER_CLASS=worker_class) as service:
        service.ready()

        assert service.post(BODY)[0] == 200
        assert service.stop() == 0


def test_plan_that_is_none_ends_the_program_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")

    ended = subprocess.run(
        [sys.executable, "-m", "pierhead.service", str(tmp_path / "plan.json")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{tmp_path}/plan.json holds no plan")
