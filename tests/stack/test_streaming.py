"""Answers that stream, through nginx and each class of workers; events, not times, say what has arrived."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from artifacts import artifact_of_code
from running_stack import RunningStack, wait_for

SECONDS = 20
INFERENCE = '''
    import json
    import socket

    from pierhead.hooks import HookError


    def model_fn(model_dir):
        return None


    def transform_fn(model, data, content_type, accept):
        request = json.loads(data)
        return globals()[request.pop("act")](**request)


    def conducted(path):
        return conducted_parts(path), "text/event-stream"


    def conducted_parts(path):
        """Yield a part for each byte that the test sends; tell it of the end."""
        with socket.socket(socket.AF_UNIX) as conductor:
            conductor.connect(path)
            try:
                yield b"first"
                while (wish := conductor.recv(1)) != b"e":
                    if wish == b"x":
                        raise ValueError("broken on purpose")
                    yield "n\\u00e4chster"
            finally:
                conductor.sendall(b"c")


    def refused():
        raise HookError("not today", 422)
        yield b""


    def failing():
        yield b""
        raise ValueError("before the first part")


    def wrong_part():
        yield 3


    def wrong_second_part():
        yield "first"
        yield 3


    def empty():
        yield from ()


    def plain():
        return "whole", "text/plain"
    '''


@pytest.fixture(scope="module", params=["gevent", "gthread", "sync"])
def stack(
    request: pytest.FixtureRequest,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningStack]:
    artifact = artifact_of_code(tmp_path_factory.mktemp("streaming"), INFERENCE)
    with RunningStack(artifact, free_ports(9), SAGEMAKER_GUNICORN_WORKER_CLASS=request.param) as running:
        running.wait_until_ready()
        yield running


@contextmanager
def streaming(
    stack: RunningStack, folder: Path
) -> Iterator[tuple[http.client.HTTPResponse, socket.socket, socket.socket]]:
    """Yield the response of a stream, the client's socket, and the socket that conducts the generator."""
    path = folder / "conductor"
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=SECONDS)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(SECONDS)
        listener.bind(str(path))
        listener.listen()
        body = json.dumps({"act": "conducted", "path": str(path)})
        connection.request("POST", "/invocations", body, {"Content-Type": "application/json"})
        client = connection.sock
        conductor, _ = listener.accept()
        with conductor:
            conductor.settimeout(SECONDS)
            yield connection.getresponse(), client, conductor
    connection.close()


def act(stack: RunningStack, name: str) -> tuple[http.client.HTTPResponse, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", stack.port, timeout=SECONDS)) as connection:
        connection.request("POST", "/invocations", json.dumps({"act": name}))
        response = connection.getresponse()
        with response:
            return response, response.read()


def test_each_part_arrives_before_the_next_is_made(stack: RunningStack, tmp_path: Path) -> None:
    with streaming(stack, tmp_path) as (response, _, conductor):
        assert response.read1() == b"first"
        for _ in range(3):
            conductor.sendall(b"n")
            assert response.read1().decode() == "nächster"
        conductor.sendall(b"e")
        assert response.read() == b""

        assert conductor.recv(1) == b"c"
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Transfer-Encoding"] == "chunked"
        assert "Content-Length" not in response.headers
        assert "X-Accel-Buffering" not in response.headers


def test_stream_that_fails_is_seen_to_be_incomplete(stack: RunningStack, tmp_path: Path) -> None:
    before = stack.log
    with streaming(stack, tmp_path) as (response, _, conductor):
        assert response.read1() == b"first"
        conductor.sendall(b"x")
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            response.read()
        assert conductor.recv(1) == b"c"
        request_id = response.headers["X-Request-Id"]

    wait_for(lambda: "broken on purpose" in stack.log[len(before) :], SECONDS, lambda: stack.log)
    written = stack.log[len(before) :]
    assert request_id
    assert written.count("Traceback") == 1
    assert f"{request_id}]: inference.py failed" in written
    assert "/pierhead/" not in written
    assert act(stack, "plain")[1] == b"whole"


def test_stream_with_a_wrong_part_later_is_incomplete(stack: RunningStack) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        act(stack, "wrong_second_part")


def test_client_that_goes_away_closes_the_generator(stack: RunningStack, tmp_path: Path) -> None:
    with streaming(stack, tmp_path) as (response, client, conductor):
        assert response.read1() == b"first"
        response.close()
        client.close()

        for _ in range(1000):
            conductor.sendall(b"n")
            conductor.settimeout(0.01)
            try:
                assert conductor.recv(1) == b"c"
                break
            except TimeoutError:
                continue
        else:
            pytest.fail("the generator was never closed")
    assert act(stack, "plain")[1] == b"whole"


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [
        ("refused", 422, "not today"),
        ("failing", 500, "before the first part"),
        ("wrong_part", 500, "transform_fn yielded a value of type int; wanted are parts of str or bytes"),
    ],
)
def test_failure_before_the_first_part_has_its_status(
    stack: RunningStack, name: str, status: int, sentence: str
) -> None:
    response, body = act(stack, name)

    assert status == response.status
    assert response.headers["Content-Type"] == "application/json"
    assert {"error": sentence} == json.loads(body)
    assert str(len(body)) == response.headers["Content-Length"]


@pytest.mark.parametrize(("name", "expected"), [("plain", b"whole"), ("empty", b"")])
def test_whole_answers_have_their_length(stack: RunningStack, name: str, expected: bytes) -> None:
    response, body = act(stack, name)

    assert (200, expected) == (response.status, body)
    assert str(len(expected)) == response.headers["Content-Length"]
