"""A client on a bare socket, which can stop half-way and send what http.client would not."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

from running_stack import Answer, RunningStack

__all__ = ["HEAD", "connected", "content_length", "in_chunks", "read_answer"]

HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNK = 1 << 20


@contextlib.contextmanager
def connected(stack: RunningStack) -> Iterator[socket.socket]:
    """Yield a connection to the public port."""
    with socket.create_connection(("127.0.0.1", stack.port), timeout=120) as connection:
        yield connection


def content_length(body: bytes) -> bytes:
    """Return an invocation with a body of a known length."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def in_chunks(body: bytes) -> bytes:
    """Return an invocation with the body in chunks."""
    pieces = (body[start : start + CHUNK] for start in range(0, len(body), CHUNK))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def read_answer(connection: socket.socket, method: str = "POST") -> Answer:
    """Return the next answer on a connection; raise http.client's exceptions where none comes."""
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    return Answer(response.status, response.headers.get("Content-Type", ""), response.read())
