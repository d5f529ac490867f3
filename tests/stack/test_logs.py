"""The whole stack's log: one line an event, found by its request's id, and nothing that clients can forge."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from artifacts import artifact_with_hooks
from running_stack import RunningStack, wait_for
from stub_binary import StubBinary

TALKATIVE = """
    import logging
    import logging.config
    import os
    import subprocess
    import sys

    print("printed at import")
    logging.config.dictConfig({"version": 1, "root": {"level": "INFO", "handlers": ["out"]}, "handlers": {
        "out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}}})
    logging.basicConfig(level=logging.DEBUG)


    def handler(data, context):
        text = data.read().decode()
        print("printed", text)
        logging.info("logged %s", text)
        logging.debug("whispered %s", text)
        if text.startswith("raise"):
            raise RuntimeError(text)
        if text == "by itself":
            subprocess.run(["sh", "-c", "echo a child wrote; printf 'without an end' >&2"])
        return text, "text/plain"
    """
CALM = """
    import logging


    def input_handler(data, context):
        logging.info("in")
        return data.read()


    def output_handler(response, context):
        logging.info("out")
        return response.content, "application/json"
    """
REQUEST_ID = re.compile(r"[0-9a-f]{32}")
TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ [\w-]+(?: \[[0-9a-f]{32}\])?: |    ")
ACCESS_FIELDS = {
    "time",
    "level",
    "program",
    "request_id",
    "message",
    "method",
    "path",
    "status",
    "bytes_in",
    "bytes_out",
    "seconds",
    "upstream_seconds",
    "attributes",
    "inference_id",
}
HOSTILE_HEADS = (
    b"GET /\x22,\x22level\x22:\x22FATAL\x22} HTTP/1.1\r\nHost: x\r\n",
    b"GET /\xff\xfe\xc3 HTTP/1.1\r\nHost: x\r\n",
    b"GET /%0a2026-01-01T00:00:00.000Z%20ERROR%20supervisor:%20forged HTTP/1.1\r\nHost: x\r\n",
    b"GET /\x1b[31mred HTTP/1.1\r\nHost: x\r\n",
    b"GET /a\\b'c HTTP/1.1\r\nHost: x\r\n",
    b"GET /" + b"x" * 6000 + b" HTTP/1.1\r\nHost: x\r\n",
    b"nonsense\r\n",
    b'GET /a HTTP/1.1\r\nHost: \x1b[2J\r\nUser-Agent: "}\\\x1b[31m\xff\r\nReferer: \x1b[1m\xfe\r\n',
    b'POST /invocations HTTP/1.1\r\nHost: x\r\nX-Amzn-SageMaker-Custom-Attributes: a="\\\x1b[31m\xff\tb\r\n'
    b'X-Amzn-SageMaker-Inference-Id: "},{\xff\r\nContent-Length: 0\r\n',
    b'POST /invocations HTTP/1.1\r\nHost: x\r\nX-Amzn-SageMaker-Custom-Attributes: tfs-model-name="}\r\n'
    b"X-Request-Id: mine\r\nContent-Length: 0\r\n",
)


class Watched:
    """A stack whose log is read from where the last reading ended."""

    def __init__(self, stack: RunningStack, stub: StubBinary) -> None:
        self.stack, self.stub = stack, stub
        self._seen = 0

    def forget(self) -> None:
        self._seen = len(self.stack.log)

    @property
    def new(self) -> str:
        return self.stack.log[self._seen :]

    def new_events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.new.splitlines()]

    def wait_for(self, text: str, count: int = 1) -> None:
        wait_for(lambda: self.new.count(text) >= count, 5, lambda: self.stack.log)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, bytes]:
        """Return status, request id and body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.stack.port, timeout=60)
        with closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            request_id = answer.headers.get_all("X-Request-Id", [])
            assert len(request_id) == 1
            assert REQUEST_ID.fullmatch(request_id[0])
            return answer.status, request_id[0], answer.read()

    def invoke(self, body: str, **headers: str) -> tuple[int, str, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/invocations", body.encode(), named)

    def send_raw(self, head: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self.stack.port), timeout=20) as connection:
            connection.sendall(head + b"Connection: close\r\n\r\n")
            while connection.recv(1 << 16):
                pass


Start = Callable[..., Watched]


@pytest.fixture(scope="module")
def start(
    half_plus_two: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    stacks: list[RunningStack] = []

    def start_one(hooks: str | None, **environ: str) -> Watched:
        folder = tmp_path_factory.mktemp("logs")
        artifact = artifact_with_hooks(folder, half_plus_two, hooks) if hooks else half_plus_two
        stub = StubBinary(folder / "stub")
        stacks.append(RunningStack(artifact, free_ports(9), **stub.environ(**environ)))
        stacks[-1].wait_until_ready()
        return Watched(stacks[-1], stub)

    yield start_one
    for stack in stacks:
        stack.close()


@pytest.fixture(scope="module")
def talkative_stack(start: Start) -> Watched:
    return start(TALKATIVE, PIERHEAD_LOG_FORMAT="json", SAGEMAKER_GUNICORN_WORKER_CLASS="gthread")


@pytest.fixture
def talkative(talkative_stack: Watched) -> Watched:
    talkative_stack.forget()
    return talkative_stack


@pytest.fixture(scope="module")
def direct_stack(start: Start) -> Watched:
    return start(None)


@pytest.fixture
def direct(direct_stack: Watched) -> Watched:
    direct_stack.forget()
    return direct_stack


def test_every_line_from_the_start_on_is_json(talkative: Watched) -> None:
    events = [json.loads(line) for line in talkative.stack.log.splitlines()]

    assert {"time", "level", "program", "message"} <= set.intersection(*(set(event) for event in events))
    assert {"supervisor", "model-server-1", "handler-workers"} <= {event["program"] for event in events}
    assert [event["message"] for event in events].count("printed at import") == 1


def test_all_lines_of_a_request_have_the_id_that_its_answer_has(talkative: Watched) -> None:
    status, request_id, _ = talkative.invoke("raise\nme", X_Request_Id="mine")

    talkative.wait_for("POST /invocations")
    events = talkative.new_events()
    assert status == 500
    assert {event["request_id"] for event in events} == {request_id}
    messages = [(event["program"], event["level"], event["message"]) for event in events]
    assert ("handler-workers", "INFO", "printed raise") in messages
    assert ("handler-workers", "INFO", "me") in messages
    assert ("nginx", "INFO", "POST /invocations 500") in messages
    (failure,) = [message for _, level, message in messages if level == "ERROR"]
    assert failure.startswith("inference.py failed: raise\nme\nTraceback")


def test_printed_and_logged_lines_appear_once_and_within_a_second(talkative: Watched) -> None:
    talkative.invoke("hello")
    wait_for(lambda: "printed hello" in talkative.new, 1)

    talkative.wait_for("POST /invocations")
    assert talkative.new.count("printed hello") == 1
    assert talkative.new.count("logged hello") == 1


def test_what_a_process_writes_past_python_is_in_the_log(talkative: Watched) -> None:
    talkative.invoke("by itself")

    talkative.wait_for("without an end")
    raw = [event for event in talkative.new_events() if "request_id" not in event]
    assert [(event["program"], event["message"]) for event in raw] == [
        ("handler-workers", "a child wrote"),
        ("handler-workers", "without an end"),
    ]


def test_access_line_tells_all_about_a_request(talkative: Watched) -> None:
    _, request_id, body = talkative.invoke(
        "x" * 1000,
        X_Amzn_SageMaker_Custom_Attributes='tfs-model-name=half_plus_two,note="1"',
        X_Amzn_SageMaker_Inference_Id="id-7",
    )

    talkative.wait_for("POST /invocations")
    (line,) = [event for event in talkative.new_events() if event["program"] == "nginx"]
    assert set(line) == ACCESS_FIELDS
    assert (line["method"], line["path"], line["status"]) == ("POST", "/invocations", 200)
    assert line["request_id"] == request_id
    assert 1000 < line["bytes_in"] < 2000
    assert len(body) < line["bytes_out"] < 2000
    assert 0 <= line["upstream_seconds"] <= line["seconds"] + 0.002
    assert line["attributes"] == 'tfs-model-name=half_plus_two,note="1"'
    assert line["inference_id"] == "id-7"


def test_pings_leave_no_line_and_other_requests_one(talkative: Watched) -> None:
    for _ in range(60):
        talkative.ask("GET", "/ping")
    talkative.ask("GET", "/ping?x=1")
    talkative.ask("PUT", "/ping")
    for _ in range(20):
        talkative.ask("GET", "/nope?secret=1")

    talkative.wait_for("GET /nope 404", 20)
    assert len(talkative.new.splitlines()) == 20
    assert "secret" not in talkative.new


def test_access_line_of_an_error_page_has_the_method_that_was_sent(talkative: Watched) -> None:
    talkative.ask("PUT", "/invocations")

    talkative.wait_for("PUT /invocations 405")
    (line,) = talkative.new_events()
    assert line["method"] == "PUT"


@pytest.mark.parametrize("head", HOSTILE_HEADS)
def test_hostile_request_is_one_line_of_json(head: bytes, talkative: Watched) -> None:
    talkative.send_raw(head)

    talkative.wait_for('"program": "nginx"')
    assert talkative.new.isascii()
    (line,) = [event for event in talkative.new_events() if event["program"] == "nginx"]
    assert set(line) == ACCESS_FIELDS
    assert all(str(value).isprintable() for value in line.values())
    assert line["level"] == "INFO"


@pytest.mark.parametrize("head", HOSTILE_HEADS)
def test_hostile_request_is_one_line_of_text(head: bytes, direct: Watched) -> None:
    direct.send_raw(head)

    direct.wait_for(" INFO nginx [")
    lines = direct.new.splitlines()
    assert all(TEXT_LINE.match(line) and line.isprintable() for line in lines)
    assert len([line for line in lines if " nginx [" in line]) == 1


def test_request_id_reaches_the_model_server_by_rest(direct: Watched) -> None:
    status, request_id, _ = direct.invoke('{"instances": [1.0]}', Content_Type="application/json")

    assert status == 200
    assert direct.stub.predictions()[-1].door == "rest"
    assert direct.stub.predictions()[-1].header("X-Request-Id") == request_id
    direct.wait_for(f"[{request_id}]: POST /invocations 200")


def test_request_id_reaches_the_model_server_by_grpc(direct: Watched) -> None:
    status, request_id, _ = direct.invoke("1.0\n", Content_Type="text/csv")

    assert status == 200
    assert direct.stub.predictions()[-1].door == "grpc"
    assert direct.stub.predictions()[-1].header("x-request-id") == request_id


def test_level_error_leaves_no_line_of_the_traffic(start: Start) -> None:
    calm = start(CALM, SAGEMAKER_CONTAINER_LOG_LEVEL="40", STUB_NOTE="calm")
    calm.forget()
    for _ in range(60):
        calm.ask("GET", "/ping")
    for _ in range(100):
        assert calm.invoke('{"instances": [1.0]}')[0] == 200
    calm.ask("GET", "/nope")
    calm.stack.stop()

    assert calm.new == ""
    # What the fake model server prints has no level.
    assert "INFO" not in re.sub("INFO model-server-1: STUB", "", calm.stack.log)
