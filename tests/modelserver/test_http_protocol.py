"""The socket side alone: a handler that answers with what it was asked, on a port and on a unix socket."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pytest

from pierhead.logs import configure_logging
from pierhead.modelserver.http_messages import Answer, AwaitedWork, Request, Work
from pierhead.modelserver.http_protocol import HttpServer
from pierhead.modelserver.waiter import Waiter
from running_stack import wait_for

GET = b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n"
GRACE = 5.0
THREADS = 4
LONGEST_HEAD = 1 << 20


@dataclass
class Echo:
    """Answers with method, target and body; `/slow` waits for the gate in a thread, `/joint` for
    others, `/accept` tells that header, and `/fault` is a bug."""

    gate: threading.Event = field(default_factory=threading.Event)
    slow_has_come: threading.Event = field(default_factory=threading.Event)
    done: list[bytes] = field(default_factory=list)
    begun: SimpleQueue[bytes] = field(default_factory=SimpleQueue)
    waiters: SimpleQueue[Waiter] = field(default_factory=SimpleQueue)

    def answer(self, request: Request) -> Answer | Work:
        if request.target == "/fault":
            raise AttributeError("a bug")
        if request.target == "/large":
            return Answer(200, b"x" * 20_000_000)
        body = b"%s %s %s" % (request.method.encode(), request.target.encode(), request.body)
        if request.target == "/accept":
            return Answer(200, request.headers["accept"].encode())
        if request.target == "/joint":
            return AwaitedWork(self._begin)
        if request.target.startswith("/slow"):
            self.slow_has_come.set()
            return lambda: self._wait(body)
        return Answer(200, body, "text/plain", closes=request.target == "/last")

    def _begin(self, waiter: Waiter) -> Callable[[], Answer]:
        self.waiters.put(waiter)
        return lambda: Answer(200)

    def _wait(self, body: bytes) -> Answer:
        self.begun.put(body)
        is_open = self.gate.wait(30)
        self.done.append(body)
        return Answer(200 if is_open else 500, body)


@dataclass
class Running:
    """A server in a thread, at a port or at the path of a unix socket."""

    echo: Echo
    address: tuple[str, int] | str
    stop: Callable[[], object]
    requests_in_flight: Callable[[], int]

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        with socket.socket(family) as connection:
            connection.settimeout(30)
            connection.connect(self.address)
            yield connection


@pytest.fixture(params=["port", "file"])
def running(
    request: pytest.FixtureRequest, free_ports: Callable[[int], int], tmp_path: Path
) -> Iterator[Running]:
    echo = Echo()
    port, path = free_ports(1), str(tmp_path / "rest.sock")
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    started = threading.Event()

    servers: list[HttpServer] = []

    async def serve() -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            server = HttpServer(echo.answer, threads)
            servers.append(server)
            if request.param == "port":
                await server.start("127.0.0.1", port)
            else:
                await server.start_file(path)
            started.set()
            await stopping.wait()
            await server.stop(GRACE)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(30)
    yield Running(
        echo,
        ("127.0.0.1", port) if request.param == "port" else path,
        lambda: loop.call_soon_threadsafe(stopping.set),
        lambda: servers[0].requests_in_flight,
    )
    echo.gate.set()
    loop.call_soon_threadsafe(stopping.set)
    thread.join(30)
    loop.close()


def read_answers(connection: socket.socket, count: int) -> list[tuple[bytes, bytes]]:
    """Return heads and bodies of the next answers."""
    answers = []
    with connection.makefile("rb") as stream:
        for _ in range(count):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = stream.readline()
                assert line, f"the connection ended after {head!r}"
                head += line
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            answers.append((head, stream.read(length)))
    return answers


def is_ended(connection: socket.socket) -> bool:
    return connection.recv(1) == b""


def test_connection_is_kept(running: Running) -> None:
    with running.connection() as connection:
        for target in (b"/a", b"/b"):
            connection.sendall(GET % target)

            assert read_answers(connection, 1)[0][1] == b"GET " + target + b" "


def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(GET % b"/slow" + b"".join(GET % b"/%d" % i for i in range(40)))
        running.echo.gate.set()

        bodies = [body for _, body in read_answers(connection, 41)]

    assert bodies == [b"GET /slow ", *(b"GET /%d " % i for i in range(40))]


def test_slow_request_delays_no_other_connection(running: Running) -> None:
    with running.connection() as slow, running.connection() as quick:
        slow.sendall(GET % b"/slow")
        quick.sendall(GET % b"/quick")

        assert read_answers(quick, 1)[0][1] == b"GET /quick "


def test_requests_that_wait_for_their_answer_are_in_flight(running: Running) -> None:
    with running.connection() as idle, running.connection() as slow:
        idle.sendall(GET % b"/a")
        read_answers(idle, 1)
        slow.sendall(GET % b"/slow")
        assert running.echo.slow_has_come.wait(30)
        wait_for(lambda: running.requests_in_flight() == 1, 30)
        running.echo.gate.set()
        read_answers(slow, 1)
        wait_for(lambda: running.requests_in_flight() == 0, 30)


def test_chunked_body_is_joined(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        connection.sendall(b"2\r\nde\r\n0\r\n\r\n")

        assert read_answers(connection, 1)[0][1] == b"POST / abcde"


def test_lines_of_a_repeated_header_are_one_list(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(
            b"GET /accept HTTP/1.1\r\nHost: h\r\nAccept: text/csv\r\nACCEPT: */*;q=0.1\r\n\r\n"
        )

        assert read_answers(connection, 1)[0][1] == b"text/csv,*/*;q=0.1"


def test_client_that_asks_first_may_send_its_body(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"

        connection.sendall(b"abc")

        assert read_answers(connection, 1)[0][1] == b"POST / abc"


@pytest.mark.parametrize("text", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
def test_malformed_request_is_refused_and_ends_the_connection(running: Running, text: bytes) -> None:
    with running.connection() as connection:
        connection.sendall(text)
        ((head, _),) = read_answers(connection, 1)

        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert is_ended(connection)


def test_request_before_a_malformed_one_is_answered(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(GET % b"/slow" + b"nonsense\r\n\r\n")
        running.echo.gate.set()
        heads = [head[:12] for head, _ in read_answers(connection, 2)]

    assert heads == [b"HTTP/1.1 200", b"HTTP/1.1 400"]


@pytest.mark.parametrize(
    "text",
    [
        b"GET /last HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    ],
)
def test_connection_ends_when_either_side_wants_it(running: Running, text: bytes) -> None:
    with running.connection() as connection:
        connection.sendall(text)
        ((head, _),) = read_answers(connection, 1)

        assert b"\r\nConnection: close\r\n" in head
        assert is_ended(connection)


def test_old_client_that_keeps_the_connection_is_told_so(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")

        assert b"\r\nConnection: keep-alive\r\n" in read_answers(connection, 1)[0][0]


def test_head_is_answered_without_a_body(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n" + GET % b"/last")
        answer = connection.makefile("rb").read()

    assert answer.split(b"\r\n\r\n")[1].startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"GET /last ")


def test_client_that_closes_its_side_still_gets_its_answer(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(GET % b"/slow")
        connection.shutdown(socket.SHUT_WR)
        running.echo.gate.set()

        assert read_answers(connection, 1)[0][1] == b"GET /slow "
        assert is_ended(connection)


def test_client_that_disappears_harms_nobody(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(GET % b"/slow" + GET % b"/a")
    running.echo.gate.set()
    with running.connection() as connection:
        connection.sendall(GET % b"/b")

        assert read_answers(connection, 1)[0][1] == b"GET /b "


@contextmanager
def busy_threads(running: Running) -> Iterator[list[socket.socket]]:
    """Keep every thread busy until the gate opens."""
    with ExitStack() as stack:
        connections = [stack.enter_context(running.connection()) for _ in range(THREADS)]
        for connection in connections:
            connection.sendall(GET % b"/slow")
        for _ in connections:
            running.echo.begun.get(timeout=30)
        yield connections


def test_work_that_waits_is_dropped_when_its_client_disappears(running: Running) -> None:
    with busy_threads(running) as others:
        with running.connection() as reset:
            reset.sendall(GET % b"/slow/reset")
            # Closing then refuses at once what still comes, as the end of a process does with unread data.
            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with running.connection() as closed:
            closed.sendall(GET % b"/slow/closed")
        with running.connection() as patient:
            patient.sendall(GET % b"/slow/patient")
            with running.connection() as later:
                # The end of a connection is seen a turn of the loop after its last bytes.
                for _ in range(3):
                    later.sendall(GET % b"/a")
                    read_answers(later, 1)
            running.echo.gate.set()
            for connection in (*others, patient):
                read_answers(connection, 1)

    assert sorted(running.echo.done) == [b"GET /slow "] * THREADS + [b"GET /slow/patient "]


def test_run_that_waits_for_others_is_told_when_its_client_disappears(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(GET % b"/joint")
        waiter = running.echo.waiters.get(timeout=30)
        assert not waiter.is_gone()

    wait_for(waiter.is_gone, 30)
    waiter.ready()


def test_client_that_closes_its_side_while_its_work_waits_still_gets_its_answer(running: Running) -> None:
    with busy_threads(running), running.connection() as connection:
        connection.sendall(GET % b"/slow")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"

        running.echo.gate.set()
        assert read_answers(connection, 1)[0][1] == b"GET /slow "


def test_flood_of_pipelined_requests_delays_no_other_connection(running: Running) -> None:
    with running.connection() as flood, running.connection() as other:
        flood.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                flood.send((GET % b"/a") * 5000)
        for _ in range(20):
            start = time.monotonic()
            other.sendall(GET % b"/b")
            assert read_answers(other, 1)[0][1] == b"GET /b "
            assert time.monotonic() - start < 1


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nx: ",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: ",
    ],
)
def test_head_without_end_is_refused(running: Running, beginning: bytes) -> None:
    with running.connection() as connection:
        connection.sendall(beginning)
        with suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(b"x" * (LONGEST_HEAD // 16))
        with suppress(ConnectionError):
            assert connection.recv(12) == b"HTTP/1.1 400"
    with running.connection() as connection:
        connection.sendall(GET % b"/a")

        assert read_answers(connection, 1)[0][1] == b"GET /a "


def test_body_of_many_small_chunks_is_joined(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")

        assert read_answers(connection, 1)[0][1] == b"POST / " + b"x" * 50_000


def test_large_answer_waits_for_a_client_that_reads_slowly(running: Running) -> None:
    with running.connection() as slow, running.connection() as other:
        slow.sendall((GET % b"/large") * 3)
        other.sendall(GET % b"/a")

        assert read_answers(other, 1)[0][1] == b"GET /a "
        assert [len(body) for _, body in read_answers(slow, 3)] == [20_000_000] * 3


def test_bug_costs_one_answer(running: Running) -> None:
    with running.connection() as connection:
        connection.sendall(GET % b"/fault" + GET % b"/a")
        (fault, _), (_, body) = read_answers(connection, 2)

    assert fault.startswith(b"HTTP/1.1 500 ")
    assert body == b"GET /a "


def test_bug_is_logged_with_its_request_and_tells_the_client_nothing(
    running: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    configure_logging("model-server-1")
    try:
        with running.connection() as connection:
            connection.sendall(GET.replace(b"\r\n\r\n", b"\r\nX-Request-Id: 0a1b\r\n\r\n") % b"/fault")
            (_, body), *_ = read_answers(connection, 1)
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])

    assert b"a bug" not in body
    log = capfd.readouterr().err
    assert "ERROR model-server-1 [0a1b]: a request could not be answered" in log
    assert "AttributeError: a bug" in log


def test_stopping_finishes_what_is_in_flight(running: Running) -> None:
    with running.connection() as idle, running.connection() as busy:
        idle.sendall(GET % b"/a")
        read_answers(idle, 1)
        busy.sendall(GET % b"/slow")
        assert running.echo.slow_has_come.wait(30)
        running.stop()

        assert is_ended(idle)
        running.echo.gate.set()
        assert read_answers(busy, 1)[0][1] == b"GET /slow "
        assert is_ended(busy)
