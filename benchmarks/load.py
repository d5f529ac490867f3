"""A load of requests over HTTP: keep-alive connections, one request in flight on each, paths in turn.

It runs in a process of its own (`python -m benchmarks.load`), so that it shares no interpreter lock with the
server, and waits for all its sockets in one thread. What it costs itself is part of what it reports.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

__all__ = ["HttpLoad", "LoadResult", "load_result"]

CHUNK = 1 << 18


@dataclass(frozen=True)
class HttpLoad:
    """What to send, to whom, from how many connections, and for how long."""

    port: int
    path: str
    body_file: str
    content_type: str
    clients: int
    seconds: float
    more_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadResult:
    """Answers that arrived, their times, and the client's own processor time for each."""

    answers: int
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    client_cpu_us: float


def load_result(latencies: list[float], seconds: float, cpu_seconds: float) -> LoadResult:
    """Return the figures of a run whose answers took `latencies` seconds each."""
    p50, p99 = np.percentile(latencies, [50, 99]) * 1e3
    answers = len(latencies)
    return LoadResult(answers, answers / seconds, float(p50), float(p99), cpu_seconds / answers * 1e6)


class Connection:
    """A connection on which one request after another is sent."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = requests
        self._received: list[bytes] = []
        self._missing = 0

    def send(self) -> None:
        """Send the next request."""
        self._received, self._missing = [], -1
        request = next(self._requests)
        self.started = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Take what has arrived, and return whether the answer is whole."""
        data = self.socket.recv(CHUNK)
        if not data:
            raise ConnectionError("the server closed a connection")
        self._received.append(data)
        if self._missing < 0:
            self._missing = _body_missing(b"".join(self._received))
        else:
            self._missing -= len(data)
        return self._missing == 0


def _body_missing(start: bytes) -> int:
    """Return how many bytes of the body are yet to come; -1 where the head is not whole."""
    head, end, body = start.partition(b"\r\n\r\n")
    if not end:
        return -1
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(start.decode(errors="replace")[:500])
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return int(length) - len(body)


def run(load: HttpLoad) -> LoadResult:
    """Send requests for the time that the load names."""
    requests = cycle([_request_bytes(load, path) for path in (load.path, *load.more_paths)])
    with ExitStack() as sockets:
        connections = [Connection(load.port, requests) for _ in range(load.clients)]
        for connection in connections:
            sockets.enter_context(connection.socket)
        start, cpu = time.perf_counter(), time.process_time()
        latencies = _alone(connections[0], load) if load.clients == 1 else _together(connections, load)
        seconds, used = time.perf_counter() - start, time.process_time() - cpu
    return load_result(latencies, seconds, used)


def _alone(connection: Connection, load: HttpLoad) -> list[float]:
    latencies: list[float] = []
    deadline = time.perf_counter() + load.seconds
    while time.perf_counter() < deadline:
        connection.send()
        while not connection.receive():
            pass
        latencies.append(time.perf_counter() - connection.started)
    return latencies


def _together(connections: list[Connection], load: HttpLoad) -> list[float]:
    latencies: list[float] = []
    deadline = time.perf_counter() + load.seconds
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()
        while time.perf_counter() < deadline:
            for key, _ in selector.select():
                if key.data.receive():
                    latencies.append(time.perf_counter() - key.data.started)
                    key.data.send()
    return latencies


def _request_bytes(load: HttpLoad, path: str) -> bytes:
    body = Path(load.body_file).read_bytes()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {load.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(run(HttpLoad(**json.loads(sys.argv[1]))))))
