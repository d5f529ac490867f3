"""What a request is answered with, and how the value that a hook returned becomes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pierhead.errors import UserCodeError
from pierhead.service.chunks import WHOLE, Chunks, body_bytes
from pierhead.service.context import Context

__all__ = ["JSON", "Answer", "read_answer"]

JSON = "application/json"
OK = 200
WANTED = "(body, content_type), with a body of str or bytes or an iterator of such"


@dataclass(frozen=True)
class Answer:
    """A response's body, Content-Type and HTTP status.

    Of a body that streams, `body` is the first part and `rest` those that follow.
    """

    body: bytes
    content_type: str = JSON
    status: int = OK
    rest: Chunks | None = None


def read_answer(result: Any, context: Context, hook: str) -> Answer:
    """Return the answer that a hook returned as `(body, content_type)` or as a bare body.

    The first part of an iterator is made here, so that its failure still has a status. Raises UserCodeError,
    naming the hook and what it returned, for anything else.
    """
    pair = result if isinstance(result, tuple) else (result, None)
    if len(pair) != 2:
        raise UserCodeError(f"{hook} returned a tuple of {len(pair)} values; wanted is {WANTED}")
    body, content_type = pair
    if content_type is not None and not _is_header(content_type):
        raise UserCodeError(f"{hook} returned the content type {content_type!r}; wanted is {WANTED}")
    concrete = _concrete_type(content_type or context.accept_header)
    if isinstance(body, Iterator):
        return _streamed(Chunks(body, hook), concrete)
    if not isinstance(body, WHOLE):
        raise UserCodeError(f"{hook} returned {_describe(result)}; wanted is {WANTED}")
    return Answer(body_bytes(body, hook), concrete)


def _streamed(chunks: Chunks, content_type: str) -> Answer:
    try:
        first = next(chunks, None)
    except UserCodeError:
        chunks.close()
        raise
    return Answer(b"", content_type) if first is None else Answer(first, content_type, rest=chunks)


def _is_header(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _describe(result: Any) -> str:
    if result is None:
        return "None"
    if isinstance(result, tuple):
        return f"a body of type {type(result[0]).__name__}"
    return f"a value of type {type(result).__name__}"


def _concrete_type(text: str) -> str:
    """Return the first type of what may be an Accept header: hooks hand that on as their content type."""
    first = text.partition(",")[0].partition(";q=")[0].strip()
    return JSON if "*" in first or "/" not in first else first
