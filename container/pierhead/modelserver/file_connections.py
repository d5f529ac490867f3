"""Connections over a unix socket, made to be cheap to open: nginx opens one for each request.

The request has mostly arrived when its connection is accepted, so it is read, answered and the connection
closed in the same turn of the event loop. asyncio's own connections take four turns and a task for that, and
more time than a small model's run.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

__all__ = ["FileConnection", "FileServer"]

LOG = logging.getLogger(__name__)
ACCEPTS_IN_A_TURN = 8
RETRY_SECONDS = 0.1
READ_BYTES = 1 << 18
# With more bytes that a client has not read the protocol is asked to pause, with so few to go on.
MOST_UNREAD = 1 << 16
FEW_UNREAD = 1 << 14


class FileConnection(asyncio.Transport):
    """One connection, by asyncio's rules of transports."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connection: socket.socket, protocol: asyncio.Protocol
    ) -> None:
        """Tell the protocol, and hand it what has arrived."""
        super().__init__({"socket": connection})
        self._loop = loop
        self._socket = connection
        self._protocol: asyncio.Protocol | None = protocol
        self._unsent = bytearray()
        self._is_closing = False
        self._is_paused = False
        self._is_at_end = False
        self._is_watched = False
        self._has_failed = False
        self._has_paused_protocol = False
        protocol.connection_made(self)
        self._read()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or will be when all is sent."""
        return self._is_closing

    def close(self) -> None:
        """Read no more, send what is left, and end."""
        if self._is_closing:
            return
        self._is_closing = True
        self._watch()
        if not self._unsent:
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        """End at once."""
        self._fail(None)

    def pause_reading(self) -> None:
        """Take nothing from the client for now."""
        self._is_paused = True
        self._watch()

    def resume_reading(self) -> None:
        """Go on taking."""
        self._is_paused = False
        self._watch()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send what the client takes, and keep the rest until it takes more."""
        if self._protocol is None or self._has_failed or (self._is_closing and not self._unsent):
            return
        sent = 0 if self._unsent else self._send(data)
        if sent == len(data) or self._has_failed:
            return
        if not self._unsent:
            self._loop.add_writer(self._socket, self._send_on)
        self._unsent += memoryview(data)[sent:]
        if len(self._unsent) > MOST_UNREAD and not self._has_paused_protocol:
            self._has_paused_protocol = True
            self._protocol.pause_writing()

    def _watch(self) -> None:
        """Be called when something arrives, as long as anybody wants it."""
        wanted = not (self._is_closing or self._is_paused or self._is_at_end)
        if wanted and not self._is_watched:
            self._loop.add_reader(self._socket, self._read)
        elif self._is_watched and not wanted:
            self._loop.remove_reader(self._socket)
        self._is_watched = wanted

    def _read(self) -> None:
        if self._is_closing or self._is_paused or self._protocol is None:
            return
        try:
            data = self._socket.recv(READ_BYTES)
            if data:
                self._protocol.data_received(data)
            else:
                self._is_at_end = True
                if not self._protocol.eof_received():
                    self.close()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as problem:
            self._fail(problem)
        except Exception as problem:
            LOG.exception("a connection broke off")
            self._fail(problem)
        self._watch()

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        """Return how many bytes the client took."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as problem:
            self._fail(problem)
            return 0

    def _send_on(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        if self._has_failed:
            return
        if not self._unsent:
            self._loop.remove_writer(self._socket)
        if self._protocol and self._has_paused_protocol and len(self._unsent) <= FEW_UNREAD:
            self._has_paused_protocol = False
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._end(None)

    def _fail(self, problem: Exception | None) -> None:
        """Forget what is unsent, and end in the next turn: whoever calls may be in the midst of something."""
        if self._has_failed:
            return
        self._is_closing = self._has_failed = True
        if self._unsent:
            self._loop.remove_writer(self._socket)
            self._unsent.clear()
        self._watch()
        self._loop.call_soon(self._end, problem)

    def _end(self, problem: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self._socket.close()
            protocol.connection_lost(problem)


class FileServer:
    """Accepts connections until it is closed, and gives each a protocol."""

    def __init__(self, listener: socket.socket, factory: Callable[[], asyncio.Protocol]) -> None:
        """Begin, on the running event loop."""
        self._listener = listener
        self._factory = factory
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more; what is open stays."""
        if self._retry:
            self._retry.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_IN_A_TURN):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                self._rest(problem)
                return
            connection.setblocking(False)
            FileConnection(self._loop, connection, self._factory())

    def _rest(self, problem: OSError) -> None:
        """Try again later: the system has no file or memory left, and would say so without end."""
        LOG.error("no connection can be accepted: %s", problem)
        self._loop.remove_reader(self._listener)
        again: tuple[Any, ...] = (self._listener, self._accept)
        self._retry = self._loop.call_later(RETRY_SECONDS, self._loop.add_reader, *again)
