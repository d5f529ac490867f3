"""What a request is answered with, and how the value that a hook returned becomes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pierhead.errors import UserCodeError
from pierhead.service.context import Context

__all__ = ["JSON", "Answer", "read_answer"]

JSON = "application/json"
OK = 200
WANTED = "(body, content_type), with a body of str or bytes"


@dataclass(frozen=True)
class Answer:
    """A response's body, Content-Type and HTTP status."""

    body: bytes
    content_type: str = JSON
    status: int = OK


def read_answer(result: Any, context: Context, hook: str) -> Answer:
    """Return the answer that a hook returned as `(body, content_type)` or as a bare body.

    Raises UserCodeError, naming the hook and what it returned, for anything else.
    """
    pair = result if isinstance(result, tuple) else (result, None)
    if len(pair) != 2:
        raise UserCodeError(f"{hook} returned a tuple of {len(pair)} values; wanted is {WANTED}")
    body, content_type = pair
    if not isinstance(body, str | bytes | bytearray | memoryview):
        raise UserCodeError(f"{hook} returned {_describe(result)}; wanted is {WANTED}")
    if content_type is not None and not _is_header(content_type):
        raise UserCodeError(f"{hook} returned the content type {content_type!r}; wanted is {WANTED}")
    data = body.encode() if isinstance(body, str) else bytes(body)
    return Answer(data, _concrete_type(content_type or context.accept_header))


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
