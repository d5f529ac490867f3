"""Requests that nobody should send, as bytes on a connection of their own, and the statuses that may answer.

A status of 0 stands for a connection closed without an answer, which is all that some of them deserve.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Hostility", "is_json_error", "random_hostility"]

HEAD = b"POST /invocations HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n"
JSON_HEAD = HEAD + b"Content-Type: application/json\r\n"
GOOD = b'{"instances": [1.0]}'
Sender = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Hostility:
    """A name, what is sent, and the statuses that are allowed; an answer is read where one may come."""

    name: str
    send: Sender
    allowed: tuple[int, ...]


def random_hostility(random_: random.Random) -> Hostility:
    """Return one of them."""
    return random_.choice(ALL)


def _whole(message: bytes) -> Sender:
    return lambda connection: connection.sendall(message)


def _post(body: bytes, head: bytes = JSON_HEAD) -> Sender:
    return _whole(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def _typed(content_type: bytes, body: bytes = GOOD) -> Sender:
    return _post(body, HEAD + b"Content-Type: " + content_type + b"\r\n")


def _with_header(line: bytes) -> Sender:
    return _post(GOOD, JSON_HEAD + line + b"\r\n")


def _aborted_upload(connection: socket.socket) -> None:
    connection.sendall(
        JSON_HEAD + b"Content-Length: 3000000\r\n\r\n" + b'{"instances": [' + b"1.0, " * 20_000
    )
    connection.close()


def _half_open(connection: socket.socket) -> None:
    connection.sendall(b"POST /invoc")
    time.sleep(1.0)
    connection.close()


def _gone_before_the_answer(connection: socket.socket) -> None:
    connection.sendall(JSON_HEAD + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD)
    connection.close()


def _slow(connection: socket.socket) -> None:
    message = JSON_HEAD + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD
    for piece in _pieces(message, 12):
        connection.sendall(piece)
        time.sleep(0.1)


def _pieces(message: bytes, count: int) -> Iterator[bytes]:
    size = len(message) // count + 1
    for start in range(0, len(message), size):
        yield message[start : start + size]


ALL = (
    Hostility("no body", _post(b""), (400,)),
    Hostility("broken JSON", _post(b'{"instances": [1,'), (400,)),
    Hostility("JSON of the wrong kind", _post(b'"text"'), (400,)),
    Hostility("text for a number", _post(b'{"instances": ["one"]}'), (400,)),
    Hostility("ragged rows", _post(b'{"instances": [[1], [1, 2]]}'), (400,)),
    Hostility("deep brackets", _post(b'{"instances": ' + b"[" * 50_000), (400,)),
    Hostility("unknown input", _post(b'{"instances": [{"z": 1}]}'), (400,)),
    Hostility("unknown signature", _post(b'{"signature_name": "z", "instances": [1]}'), (400,)),
    Hostility("all bytes", _post(bytes(range(1, 256)) * 16), (400,)),
    Hostility("an unknown type", _typed(b"application/x-unknown"), (415,)),
    Hostility("no type but its parameters", _typed(b";;;,\xff"), (200, 400, 415)),
    Hostility("an open quote in CSV", _typed(b"text/csv", b'1.0\n"2.0'), (400,)),
    Hostility("words in CSV", _typed(b"text/csv", b"one\ntwo"), (400,)),
    Hostility("a damaged array", _typed(b"application/x-npy", b"\x93NUMPY\x01\x00v\x00{"), (400,)),
    Hostility("damaged gzip", _with_header(b"Content-Encoding: gzip"), (400,)),
    Hostility("an unknown encoding", _with_header(b"Content-Encoding: br"), (415,)),
    Hostility("nothing acceptable", _with_header(b"Accept: image/png"), (406,)),
    Hostility(
        "an unknown model", _with_header(b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-name=z"), (404,)
    ),
    Hostility(
        "an unknown version", _with_header(b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-version=9"), (404,)
    ),
    Hostility(
        "an ill attribute",
        _with_header(b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-name=../../x"),
        (400,),
    ),
    Hostility("a huge header", _with_header(b"X-Huge: " + b"x" * 60_000), (400, 431)),
    Hostility("bytes in a header", _with_header(b"X-Odd: \x01\x02\xff"), (200, 400)),
    Hostility("two lengths", _post(GOOD, JSON_HEAD + b"Content-Length: 5\r\n"), (400,)),
    Hostility("a length and chunks", _with_header(b"Transfer-Encoding: chunked"), (400,)),
    Hostility("broken chunks", _whole(JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), (400,)),
    Hostility(
        "a wrong method",
        _whole(b"DELETE /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        (405,),
    ),
    Hostility("an unknown path", _whole(b"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"), (400,)),
    Hostility("no HTTP", _whole(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), (400,)),
    Hostility("an aborted upload", _aborted_upload, (0,)),
    Hostility("half open", _half_open, (0,)),
    Hostility("gone before the answer", _gone_before_the_answer, (0,)),
    Hostility("slow but right", _slow, (200,)),
)


def is_json_error(content_type: str, body: bytes) -> bool:
    """Return whether an answer is what every refusal must be."""
    try:
        return content_type == "application/json" and bool(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return False
