"""The parts of a body that a hook yields one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pierhead.errors import UserCodeError
from pierhead.service.user_code import call_user_code

__all__ = ["WHOLE", "Chunks", "body_bytes"]

WHOLE = (str, bytes, bytearray, memoryview)

END = object()


class Chunks:
    """An iterator of the user's, as parts of bytes. Empty parts are left out: they would end a chunked body.

    Raises UserCodeError for what the user's code raises, and for a part that is neither str nor bytes.
    """

    def __init__(self, source: Iterator[Any], hook: str) -> None:
        self._source = source
        self._hook = hook

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> bytes:
        while (part := call_user_code(next, self._source, END)) is not END:
            data = self._read(part)
            if data:
                return data
        raise StopIteration

    def close(self) -> None:
        """Close the user's iterator, where it can be: in a generator `finally` runs."""
        close = getattr(self._source, "close", None)
        if close is not None:
            call_user_code(close)

    def _read(self, part: Any) -> bytes:
        if not isinstance(part, WHOLE):
            kind = type(part).__name__
            raise UserCodeError(
                f"{self._hook} yielded a value of type {kind}; wanted are parts of str or bytes"
            )
        return body_bytes(part, self._hook)


def body_bytes(body: str | bytes | bytearray | memoryview, hook: str) -> bytes:
    """Return a body or a part of one as bytes; raise UserCodeError for text that cannot be UTF-8."""
    try:
        return body.encode() if isinstance(body, str) else bytes(body)
    except UnicodeEncodeError as problem:
        raise UserCodeError(f"{hook} returned text that cannot be UTF-8: {problem}") from problem
