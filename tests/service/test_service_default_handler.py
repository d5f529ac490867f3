from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import pytest
from flask.testing import FlaskClient
from tests.service.service_fakes import FakeBackend, make_plan

from pierhead.control import ServerAddress
from pierhead.errors import Code, ServingError
from pierhead.service.app import create_app
from pierhead.service.call import Call
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.rest_forward import forward
from pierhead.settings import Settings

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
ROWS = b'{"instances": [1.0, 2.0, 5.0]}'


def client(backend: FakeBackend | None = None, *, default_accept: str = "") -> FlaskClient:
    settings = Settings.from_env({"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": default_accept})
    served = backend or FakeBackend()
    handler = DefaultHandler(served, settings.default_accept)
    return create_app(make_plan(), settings, served, handler).test_client()


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (ROWS, "application/json", {"predictions": [2.5, 3.0, 4.5]}),
        (ROWS, "application/json; charset=utf-8", {"predictions": [2.5, 3.0, 4.5]}),
        (ROWS, None, {"predictions": [2.5, 3.0, 4.5]}),
        (b'{"inputs": [1.0, 2.0]}', "application/json", {"outputs": [2.5, 3.0]}),
        (b"[1.0,2.0,5.0]", "application/json", {"predictions": [[2.5, 3.0, 4.5]]}),
        (b"1.0\n2.0\n5.0\n", "text/csv", {"predictions": [2.5, 3.0, 4.5]}),
        (b"[1.0]\n[2.0]\n", "application/jsonlines", {"predictions": [[2.5], [3.0]]}),
    ],
)
def test_each_format_reaches_the_model(body: bytes, content_type: str | None, expected: object) -> None:
    answer = client().post("/invocations", data=body, content_type=content_type)

    assert (200, expected) == (answer.status_code, answer.get_json())


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/jsonlines", "application/jsonlines"),
        ("application/jsonlines;q=0.9, */*;q=0.1", "application/jsonlines"),
        ("application/json, application/jsonlines", "application/json"),
    ],
)
def test_answer_has_a_concrete_type(accept: str, content_type: str) -> None:
    answer = client().post("/invocations", data=ROWS, headers={"Accept": accept})

    assert content_type == answer.headers["Content-Type"]


def test_lines_are_one_for_each_instance() -> None:
    answer = client(default_accept="application/jsonlines").post("/invocations", data=ROWS)

    assert [json.loads(line) for line in answer.data.splitlines()] == [2.5, 3.0, 4.5]


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status"),
    [
        (b"\x89PNG", "application/x-image", "", 415),
        (b"", "application/json", "", 400),
        (b"", "text/csv", "", 400),
        (b'{"instances":[1,', "application/json", "", 400),
        (ROWS, "application/json", "image/png", 406),
    ],
)
def test_unusable_requests_are_refused_in_json(
    body: bytes, content_type: str, accept: str, status: int
) -> None:
    answer = client().post("/invocations", data=body, content_type=content_type, headers={"Accept": accept})

    assert status == answer.status_code
    assert answer.content_type == "application/json"
    assert answer.get_json()["error"]


def test_refusal_of_the_model_is_json_whatever_is_accepted() -> None:
    backend = FakeBackend(ServingError(Code.UNAVAILABLE, "gone"))

    answer = client(backend).post("/invocations", data=ROWS, headers={"Accept": "application/jsonlines"})

    assert (answer.status_code, answer.get_json()) == (503, {"error": "gone"})
    assert answer.content_type == "application/json"


class FakeRest(BaseHTTPRequestHandler):
    """Refuses every request, and keeps its path and body."""

    seen: Queue[tuple[str, bytes]] = Queue()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.put((self.path, body))
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"error": "No signature was found"}')

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def rest() -> Iterator[ServerAddress]:
    with HTTPServer(("127.0.0.1", 0), FakeRest) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield ServerAddress(1, server.server_port)
        server.shutdown()
        thread.join()


def test_classify_goes_to_rest_as_it_is(rest: ServerAddress) -> None:
    answer = forward(b"as it is", Call("b", 2, "classify", rest, 5.0))

    assert (answer.status, answer.body) == (400, b'{"error": "No signature was found"}')
    assert FakeRest.seen.get(timeout=5) == ("/v1/models/b/versions/2:classify", b"as it is")


def test_rest_that_does_not_answer_is_unavailable(rest: ServerAddress) -> None:
    with pytest.raises(ServingError) as refusal:
        forward(b"", Call("b", None, "regress", ServerAddress(1, 1), 5.0))

    assert refusal.value.code == Code.UNAVAILABLE
