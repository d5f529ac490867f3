"""Requests and answers of the HTTP door, and what an answer is on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

__all__ = ["Answer", "Handler", "Request", "Work", "head", "html_answer"]

KNOWN_STATUSES = {status.value: status.phrase for status in HTTPStatus} | {429: "Client Error"}


@dataclass(frozen=True)
class Request:
    """A request that has arrived whole; `target` is as its first line has it, header names are lower case."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What a client gets; `closes` ends the connection after it."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False


Work = Callable[[], Answer]
Handler = Callable[[Request], Answer | Work]


def head(answer: Answer, connection: str | None) -> bytes:
    """Return the status line and headers of an answer; `connection` is the Connection header, if any."""
    reason = KNOWN_STATUSES.get(answer.status, "Client Error")
    lines = [
        f"HTTP/1.1 {answer.status} {reason}",
        f"Content-Type: {answer.content_type}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Length: {len(answer.body)}",
        *(f"{name}: {value}" for name, value in answer.headers),
    ]
    if connection:
        lines.append(f"Connection: {connection}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def html_answer(status: HTTPStatus) -> Answer:
    """Return the page with which TensorFlow Serving's HTTP library refuses, and closes the connection."""
    title = status.phrase
    page = (
        f"<HTML><HEAD>\n<TITLE>{status.value} {title}</TITLE>\n</HEAD>"
        f"<BODY>\n<H1>{title}</H1>\n</BODY></HTML>\n"
    )
    return Answer(status.value, page.encode(), "text/html", closes=True)
