"""Readiness probes, asked of small servers."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from pierhead.supervisor.events import ProbeAnswered
from pierhead.supervisor.probes import answers_pings, serves_models, start_probe


class Answers(http.server.BaseHTTPRequestHandler):
    server: FakeModelServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        threading.Event().wait(self.server.delay)
        status, content = self.server.answers.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


class FakeModelServer(http.server.ThreadingHTTPServer):
    """Answers each path with what a test put there."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.delay = 0.0

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@pytest.fixture
def server() -> Iterator[FakeModelServer]:
    with FakeModelServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def status(*states: str) -> tuple[int, bytes]:
    return 200, json.dumps({"model_version_status": [{"state": state} for state in states]}).encode()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status("AVAILABLE"), True),
        (status("END", "AVAILABLE"), True),
        (status("LOADING"), False),
        (status("AVAILABLE", "LOADING"), False),
        (status("START", "AVAILABLE"), False),
        (status(), False),
        ((404, b'{"error": "not found"}'), False),
        ((503, status("AVAILABLE")[1]), False),
        ((200, b"not JSON"), False),
        ((200, b"[]"), False),
        ((200, b"{}"), False),
        ((200, b'{"model_version_status": [{}]}'), False),
        ((200, b"\xff"), False),
    ],
)
def test_model_is_served_when_a_version_is_available(
    answer: tuple[int, bytes], expected: bool, server: FakeModelServer
) -> None:
    server.answers["/v1/models/m"] = answer

    assert expected is serves_models(server.port, ("m",))()


def test_all_models_have_to_be_served(server: FakeModelServer) -> None:
    probe = serves_models(server.port, ("a", "b"))

    server.answers["/v1/models/a"] = status("AVAILABLE")
    assert not probe()
    server.answers["/v1/models/b"] = status("AVAILABLE")
    assert probe()


def test_a_server_that_was_started_again_is_asked_for_all_models_again(server: FakeModelServer) -> None:
    probe = serves_models(server.port, ("a", "b"))
    server.answers |= {"/v1/models/a": status("AVAILABLE"), "/v1/models/b": status("AVAILABLE")}
    assert probe()

    server.answers["/v1/models/a"] = status("LOADING")

    assert not probe()


def test_model_names_are_percent_encoded(server: FakeModelServer) -> None:
    server.answers["/v1/models/a%20%2F%C3%A9"] = status("AVAILABLE")

    assert serves_models(server.port, ("a /é",))()


@pytest.mark.parametrize(("code", "is_supervisors"), [(200, True), (503, True), (404, False), (502, False)])
def test_only_the_supervisors_own_answers_to_pings_count(
    code: int, is_supervisors: bool, server: FakeModelServer
) -> None:
    server.answers["/ping"] = (code, b"")

    assert answers_pings(server.port)() == is_supervisors


def test_nobody_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert not answers_pings(port)()
    assert not serves_models(port, ("m",))()


def test_something_else_than_http_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=speak_nonsense, args=(listener,))
        thread.start()
        assert not answers_pings(listener.getsockname()[1])()
        thread.join()


def speak_nonsense(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.recv(1000)
        connection.sendall(b"\x00\x01\x02 hello\n")


def answer_after(count: int) -> Callable[[], bool]:
    answers = iter([False] * count + [True])
    return lambda: next(answers)


def test_probe_is_asked_until_it_is_true_and_reported_once() -> None:
    reports: SimpleQueue[ProbeAnswered] = SimpleQueue()

    start_probe("server", 7, answer_after(3), reports.put)

    assert ProbeAnswered("server", 7) == reports.get(timeout=10)
    with pytest.raises(Empty):
        reports.get_nowait()


def test_probe_that_is_cancelled_is_not_asked_again() -> None:
    reports: SimpleQueue[ProbeAnswered] = SimpleQueue()
    asked: SimpleQueue[None] = SimpleQueue()

    def probe() -> bool:
        asked.put(None)
        return False

    cancelled = start_probe("server", 7, probe, reports.put)
    asked.get(timeout=10)
    cancelled.set()
    with contextlib.suppress(Empty):
        asked.get(timeout=0.05)

    with pytest.raises(Empty):
        asked.get(timeout=0.3)
    assert reports.empty()


def test_a_model_server_that_takes_seconds_to_answer_is_ready(server: FakeModelServer) -> None:
    server.answers["/v1/models/a"] = status("AVAILABLE")
    server.delay = 2.5

    assert serves_models(server.port, ("a",))()
