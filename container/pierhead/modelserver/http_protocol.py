"""The socket side of the HTTP door: requests in, answers out in the same order, nothing about models.

A handler answers a request at once, or returns work for a thread; either way the requests of one connection
are answered one after another, so pipelining is safe. A client that reads slowly, or sends many requests at
once, holds back only itself. Work that still waits for a thread when its client goes away is never done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TypeVar, cast

import httptools

from pierhead.contract.headers import REQUEST_ID
from pierhead.logs import request_in_log
from pierhead.modelserver.awaited_work import awaited_answer
from pierhead.modelserver.file_connections import FileServer
from pierhead.modelserver.http_messages import Answer, AwaitedWork, Handler, Request, Work, head, html_answer
from pierhead.modelserver.listening import BACKLOG, SocketFile, is_refusing, listening_port, send_at_once

__all__ = ["HttpProtocol", "HttpServer", "malformed_answer"]

Outcome = TypeVar("Outcome")
LOG = logging.getLogger(__name__)
LONGEST_QUEUE = 16
LARGE_BODY = 1 << 16
# Bytes without a whole head, chunk or request among them: the parser copies what it has for each new piece.
LONGEST_HEAD = 1 << 20
ANSWERS_IN_A_TURN = 16
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
FAILURE = Answer(500, b'{\n    "error": "the model server failed; its log says why"\n}')
DROPPED = Answer(499, closes=True)


@dataclass
class _Pending:
    """A request in the queue, or a settled answer, with what the connection does after it."""

    subject: Request | Answer
    version: str
    keep_alive: bool
    has_started: bool = False

    def guarded(self, work: Callable[[], Outcome], /) -> Outcome | Answer:
        """Return what the work returns; a fault of ours costs one answer, not the connection's order."""
        try:
            return work()
        except Exception:
            headers = self.subject.headers if isinstance(self.subject, Request) else {}
            with request_in_log(headers.get(REQUEST_ID.lower(), "")):
                LOG.exception("a request could not be answered")
            return FAILURE


def malformed_answer(_target: str) -> Answer:
    """Return what TensorFlow Serving says to something that is no HTTP, whatever its target."""
    return html_answer(HTTPStatus.BAD_REQUEST)


class HttpProtocol(asyncio.Protocol):
    """One connection; `malformed` answers a request that is no HTTP, by as much of its target as is known."""

    def __init__(
        self,
        handler: Handler,
        executor: Executor,
        connections: set[HttpProtocol],
        malformed: Callable[[str], Answer] = malformed_answer,
    ) -> None:
        self._handler = handler
        self._malformed = malformed
        self._target = b""
        self._executor = executor
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[_Pending] = deque()
        self._current: tuple[_Pending, asyncio.Future[Answer | AwaitedWork]] | None = None
        self._next_turn: asyncio.Handle | None = None
        self._unfinished_bytes = 0
        self._is_writable = True
        self._is_ending = False
        self._is_receiving = False
        self._is_deaf = False

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the server's connections."""
        self._transport = cast(asyncio.Transport, transport)
        self._socket = transport.get_extra_info("socket")
        send_at_once(self._socket)
        self._connections.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Forget what the client asked for; work under way ends by itself and its answer is dropped."""
        self._connections.discard(self)
        self._queue.clear()
        if self._current:
            self._current[1].cancel()

    def data_received(self, data: bytes) -> None:
        """Read requests, and answer as many as can be."""
        if self._is_deaf:
            return
        self._unfinished_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No other protocol is spoken here: the request is answered and the connection ends.
            self._is_deaf = True
            if self._queue:
                self._queue[-1].keep_alive = False
        except httptools.HttpParserError:
            self._refuse()
        if self._unfinished_bytes > LONGEST_HEAD:
            self._refuse()
        self._advance()

    def eof_received(self) -> bool:
        """Keep a connection open on whose answers the client may still wait.

        A client that is gone looks the same as one that has only said all it had to say. Any bytes tell them
        apart, for the former's machine refuses them: an interim answer, which clients must overlook.
        """
        self._is_ending = True
        pending = self._current[0] if self._current else None
        if pending and not pending.has_started and pending.version != "1.0":
            self._transport.write(CONTINUE)
        return self.is_busy

    def pause_writing(self) -> None:
        """Stop answering until the client has read."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Go on answering."""
        self._is_writable = True
        self._advance()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Start a request."""
        self._is_receiving = True
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a repeated one is a list (RFC 9110, section 5.3), but of types the last holds."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key in self._headers and key != "content-type":
            text = f"{self._headers[key]},{text}"
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        """Tell a client that asks first to send its body."""
        self._unfinished_bytes = 0
        expects = self._headers.get("expect", "").lower() == "100-continue"
        if expects and not self._current and not self._queue:
            self._transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unfinished_bytes = 0
        if not self._body:
            self._body = body
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += body

    def on_message_complete(self) -> None:
        """Queue the request."""
        self._is_receiving = False
        self._unfinished_bytes = 0
        body, self._body = bytes(self._body), b""
        method = self._parser.get_method().decode("latin-1")
        request = Request(method, self._target.decode(errors="surrogateescape"), self._headers, body)
        keep_alive = self._parser.should_keep_alive()
        self._queue.append(_Pending(request, self._parser.get_http_version(), keep_alive))
        if len(self._queue) > LONGEST_QUEUE:
            self._transport.pause_reading()

    # Answering.

    @property
    def is_busy(self) -> bool:
        """Whether a request of this connection waits for its answer."""
        return bool(self._current or self._queue)

    def finish(self) -> None:
        """End the connection as soon as what has arrived is answered."""
        self._is_ending = True
        if not (self.is_busy or self._is_receiving):
            self._transport.close()

    def _refuse(self) -> None:
        """Answer what came before, then that the rest is no HTTP; nothing more is read."""
        if not self._is_deaf:
            self._is_deaf = True
            answer = self._malformed(self._target.decode("latin-1"))
            self._queue.append(_Pending(answer, "1.1", keep_alive=False))

    def _advance(self) -> None:
        for _ in range(ANSWERS_IN_A_TURN):
            if not self._can_answer():
                break
            pending = self._queue.popleft()
            if isinstance(pending.subject, Answer):
                self._write(pending, pending.subject)
                continue
            outcome = pending.guarded(partial(self._handler, pending.subject))
            if isinstance(outcome, Answer):
                self._write(pending, outcome)
            else:
                self._start(pending, outcome)
        if self._can_answer() and not self._next_turn:
            self._next_turn = asyncio.get_running_loop().call_soon(self._take_turn)
        if len(self._queue) <= LONGEST_QUEUE and not self._transport.is_closing():
            self._transport.resume_reading()

    def _take_turn(self) -> None:
        self._next_turn = None
        self._advance()

    def _can_answer(self) -> bool:
        is_open = self._is_writable and not self._transport.is_closing()
        return bool(self._queue) and is_open and not self._current

    def _start(self, pending: _Pending, work: Work) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(work, AwaitedWork):
            job = awaited_answer(work, self._executor, pending.guarded, partial(is_refusing, self._socket))
        else:
            job = loop.run_in_executor(self._executor, self._work_for_client, pending, work)
        self._current = pending, job
        job.add_done_callback(partial(self._finished, pending))

    def _work_for_client(self, pending: _Pending, work: Work) -> Answer | AwaitedWork:
        """Return what the work returns, in a thread; without doing it where the client is gone."""
        pending.has_started = True
        return DROPPED if is_refusing(self._socket) else pending.guarded(work)

    def _finished(self, pending: _Pending, job: asyncio.Future[Answer | AwaitedWork]) -> None:
        self._current = None
        if self._transport.is_closing() or job.cancelled():
            return
        outcome = job.result()
        if isinstance(outcome, AwaitedWork):
            self._start(pending, outcome)
        else:
            self._write(pending, outcome)
            self._advance()

    def _write(self, pending: _Pending, answer: Answer) -> None:
        is_last = self._is_ending and not self._queue
        closes = answer.closes or is_last or not pending.keep_alive
        connection = "close" if closes else "keep-alive" if pending.version == "1.0" else None
        is_head = isinstance(pending.subject, Request) and pending.subject.method == "HEAD"
        body = b"" if is_head else answer.body
        if len(body) > LARGE_BODY:
            self._transport.write(head(answer, connection))
            self._transport.write(body)
        else:
            self._transport.write(head(answer, connection) + body)
        if closes:
            self._queue.clear()
            self._transport.close()


class HttpServer:
    """A listening port, a unix socket, or both, and their connections."""

    def __init__(
        self, handler: Handler, executor: Executor, malformed: Callable[[str], Answer] = malformed_answer
    ) -> None:
        self._connections: set[HttpProtocol] = set()
        self._factory = partial(HttpProtocol, handler, executor, self._connections, malformed)
        self._servers: list[asyncio.Server | FileServer] = []
        self._files: list[SocketFile] = []

    @property
    def requests_in_flight(self) -> int:
        """How many connections have a request that waits for its answer."""
        return sum(connection.is_busy for connection in self._connections)

    async def start(self, bind_address: str, port: int) -> None:
        """Listen at an address, on all when it is empty; raise OSError where that is impossible."""
        loop, listener = asyncio.get_running_loop(), listening_port(bind_address, port)
        self._servers.append(await loop.create_server(self._factory, sock=listener, backlog=BACKLOG))

    async def start_file(self, path: str) -> None:
        """Listen on a unix socket, in place of an older one; raise OSError where that is impossible."""
        file = SocketFile(path)
        self._files.append(file)
        self._servers.append(FileServer(file.listener, self._factory))

    async def stop(self, grace: float) -> None:
        """Take no more connections, answer what has arrived, at most for `grace` seconds."""
        for file in self._files:
            file.remove()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.finish()
        deadline = asyncio.get_running_loop().time() + grace
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
