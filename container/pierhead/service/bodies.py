"""Request bodies that arrive while they are read: cut short by a client that goes away, or left unread.

nginx passes large bodies on as they come. A body that ends early must not look like a whole one to hooks, and
a connection that is closed with bytes unread is reset, which could cost the answer that was already sent.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from werkzeug.wsgi import ClosingIterator

from pierhead.errors import Code, ServingError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["WholeBody", "whole_bodies"]

DISCARDED_AT_ONCE = 1 << 16


class WholeBody(io.RawIOBase):
    """A body that is either read to its end or refused.

    `length` is None where the framing says where the end is, as in chunks. Reading raises ServingError
    (CANCELLED) where the client has gone away before the end.
    """

    def __init__(self, stream: Any, length: int | None) -> None:
        self._stream = stream
        self._missing = length

    def readable(self) -> bool:
        """Return that this is for reading."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes, or all that is left."""
        return self._taken(self._stream.read, size, reads_all=size is None or size < 0)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line, or `size` bytes of it."""
        return self._taken(self._stream.readline, size, reads_all=False)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer; return how many bytes went in."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def drain(self) -> None:
        """Read what the application has left, so that the connection ends in order."""
        try:
            while self.read(DISCARDED_AT_ONCE):
                pass
        except ServingError:
            return

    def _taken(self, read: Callable[..., bytes], size: int | None, *, reads_all: bool) -> bytes:
        try:
            data = read() if size is None or size < 0 else read(size)
        except OSError as problem:
            raise _cut_short() from problem
        if self._missing is not None:
            self._missing -= len(data)
            if self._missing > 0 and (reads_all or (not data and size != 0)):
                raise _cut_short()
        return data


def whole_bodies(app: WSGIApplication) -> WSGIApplication:
    """Return the application with bodies that are whole, and read to their end when it has answered."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH")
        body = WholeBody(environ["wsgi.input"], int(length) if length else None)
        environ["wsgi.input"] = body
        return ClosingIterator(app(environ, start_response), body.drain)

    return answer


def _cut_short() -> ServingError:
    return ServingError(Code.CANCELLED, "the client went away before its body was complete")
