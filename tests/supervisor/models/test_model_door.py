"""The HTTP of `/models` on its unix socket, in front of a table that a test plays."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pierhead.errors import Code, ServingError
from pierhead.supervisor.events import LoadRequested, UnloadRequested
from pierhead.supervisor.models.door import MODEL_NUMBER, ModelsDoor
from pierhead.supervisor.models.publication import Publication
from pierhead.supervisor.models.table import ModelTable
from pierhead.supervisor.run_folder import RunFolder

URL = "/opt/ml/models/a/model"
ORDER = json.dumps({"model_name": "a", "url": URL}).encode()
LONGEST_WAIT = 10.0


class PlayedTable(ModelTable):
    """Says what is loaded as a test has it."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}

    def loaded(self) -> dict[str, str]:
        return dict(self.urls)


class Client:
    """Asks the door, and plays the loop that answers loads and unloads."""

    def __init__(self, run: RunFolder, wait_seconds: float) -> None:
        self.table, self.publication = PlayedTable(), Publication(run)
        self.requests: queue.SimpleQueue[LoadRequested | UnloadRequested] = queue.SimpleQueue()
        self.socket = run.models_socket
        self.door = ModelsDoor(self.socket, self.table, self.publication, self.requests.put, wait_seconds)

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost", timeout=LONGEST_WAIT)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(LONGEST_WAIT)
        connection.sock.connect(str(self.socket))
        return connection

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body)
            response = connection.getresponse()
            content = response.read()
            assert response.headers["Content-Type"] == "application/json"
            return response.status, json.loads(content)

    def ask_refused(
        self, refusal: ServingError | None, method: str, path: str, body: bytes | None = None
    ) -> tuple[int, Any]:
        """Ask while the loop answers the one request that comes."""
        answering = threading.Thread(
            target=lambda: self.requests.get(timeout=LONGEST_WAIT).answer(refusal), daemon=True
        )
        answering.start()
        try:
            return self.ask(method, path, body)
        finally:
            answering.join(LONGEST_WAIT)


@contextlib.contextmanager
def open_door(wait_seconds: float) -> Iterator[Client]:
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    run = RunFolder(folder, is_private=False)
    run.make_model_folders()
    client = Client(run, wait_seconds)
    client.door.open()
    yield client
    client.door.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared_client() -> Iterator[Client]:
    """To close a door takes a while, so the tests share one."""
    with open_door(LONGEST_WAIT) as client:
        yield client


@pytest.fixture
def client(shared_client: Client) -> Client:
    shared_client.table.urls.clear()
    return shared_client


def test_socket_is_open_to_nginx_of_another_user(client: Client) -> None:
    assert client.socket.stat().st_mode & 0o666 == 0o666


def test_load_asks_the_table_and_describes_the_model(client: Client) -> None:
    assert client.ask_refused(None, "POST", "/models", ORDER) == (200, {"modelName": "a", "modelUrl": URL})


def test_load_passes_name_and_url_as_they_are(client: Client) -> None:
    asking = threading.Thread(target=client.ask, args=("POST", "/models", ORDER), daemon=True)
    asking.start()
    request = client.requests.get(timeout=LONGEST_WAIT)
    request.answer(None)
    asking.join(LONGEST_WAIT)

    assert isinstance(request, LoadRequested)
    assert ("a", URL) == (request.name, request.url)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.RESOURCE_EXHAUSTED, 507),
        (Code.ALREADY_EXISTS, 409),
        (Code.ABORTED, 409),
        (Code.NOT_FOUND, 404),
        (Code.INVALID_ARGUMENT, 400),
        (Code.DEADLINE_EXCEEDED, 408),
        (Code.UNAVAILABLE, 503),
        (Code.INTERNAL, 500),
    ],
)
def test_refusal_has_the_status_that_the_platform_acts_on(client: Client, code: Code, status: int) -> None:
    refusal = ServingError(code, "for a reason")

    assert client.ask_refused(refusal, "POST", "/models", ORDER) == (status, {"error": "for a reason"})


def test_unload_asks_the_table(client: Client) -> None:
    client.table.urls["a"] = URL

    assert client.ask_refused(None, "DELETE", "/models/a") == (200, {"modelName": "a", "modelUrl": URL})


def test_unload_of_what_is_not_loaded_is_404(client: Client) -> None:
    refusal = ServingError(Code.NOT_FOUND, "model 'a' is not loaded")

    assert client.ask_refused(refusal, "DELETE", "/models/a")[0] == 404


def test_waiting_load_keeps_no_other_request_waiting(client: Client) -> None:
    client.table.urls["b"] = "/x"
    asking = threading.Thread(target=client.ask, args=("POST", "/models", ORDER), daemon=True)
    asking.start()
    request = client.requests.get(timeout=LONGEST_WAIT)

    assert client.ask("GET", "/models/b")[0] == 200
    assert client.ask("GET", "/models")[0] == 200
    assert asking.is_alive()
    request.answer(None)
    asking.join(LONGEST_WAIT)


def test_list_and_description_are_of_what_is_loaded(client: Client) -> None:
    assert client.ask("GET", "/models") == (200, {"models": []})
    client.table.urls = {"a": URL, "b": "/x"}
    described = {"modelName": "a", "modelUrl": URL}

    assert client.ask("GET", "/models/a") == (200, described)
    assert client.ask("GET", "/models/%61?x=1") == (200, described)
    assert client.ask("GET", "/models?limit=1") == (200, {"models": [described], "nextPageToken": "a"})
    assert client.ask("GET", "/models/c")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/models", b"{}"),
        ("POST", "/models", None),
        ("POST", "/models", b'{"model_name": "../a", "url": "/x"}'),
        ("GET", "/models/..", None),
        ("GET", "/models/%2e%2e%2fa", None),
        ("GET", "/models/", None),
        ("DELETE", "/models/.a", None),
        ("GET", "/models?limit=x", None),
        ("GET", "/models?" + 17 * "a=1&", None),
    ],
)
def test_bad_request_never_reaches_the_table(
    client: Client, method: str, path: str, body: bytes | None
) -> None:
    status, document = client.ask(method, path, body)

    assert status == 400
    assert list(document) == ["error"]
    assert client.requests.empty()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/models/a"),
        ("DELETE", "/models"),
        ("PUT", "/models"),
        ("PATCH", "/models/a"),
        ("OPTIONS", "/models"),
    ],
)
def test_other_method_is_405(client: Client, method: str, path: str) -> None:
    status, document = client.ask(method, path)

    assert status == 405
    assert "POST and GET /models" in document["error"]
    assert client.requests.empty()


def test_method_that_nobody_knows_is_refused_as_json(client: Client) -> None:
    assert client.ask("PROPFIND", "/models")[0] == 501


def test_body_is_never_the_next_request_of_the_connection(client: Client) -> None:
    smuggled = b"GET /models/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    with contextlib.closing(client.connect()) as connection:
        for method, path in (
            ("PUT", "/models"),
            ("GET", "/models"),
            ("POST", "/models/a"),
            ("GET", "/models"),
        ):
            connection.request(method, path, smuggled)
            response = connection.getresponse()
            assert "smuggled" not in response.read().decode()


def test_number_is_told_while_the_direct_way_is_open(client: Client) -> None:
    name = 255 * "n"

    def number() -> tuple[int, str | None]:
        with contextlib.closing(client.connect()) as connection:
            connection.request("GET", f"/direct/{name}")
            response = connection.getresponse()
            response.read()
            return response.status, response.headers[MODEL_NUMBER]

    assert number() == (403, None)
    client.publication.open_direct(name, 17)
    assert number() == (204, "17")
    client.publication.close_direct(name)
    assert number() == (403, None)


def test_wait_without_an_end_is_408_and_late_answers_do_no_harm() -> None:
    with open_door(0.05) as client:
        status, document = client.ask("POST", "/models", ORDER)
        client.requests.get(timeout=LONGEST_WAIT).answer(None)

        assert status == 408
        assert document == {"error": "the request is not done yet, and goes on"}


def test_client_that_leaves_takes_nothing_along(client: Client) -> None:
    connection = client.connect()
    connection.request("POST", "/models", ORDER)
    request = client.requests.get(timeout=LONGEST_WAIT)
    connection.close()
    request.answer(None)

    assert client.ask("GET", "/models")[0] == 200
