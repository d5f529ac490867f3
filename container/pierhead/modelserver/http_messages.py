"""Requests and answers of the HTTP door, and what an answer is on the wire."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from pierhead.errors import Code
from pierhead.modelserver.waiter import Waiter

__all__ = [
    "Answer",
    "AwaitedWork",
    "Handler",
    "Request",
    "Work",
    "finished",
    "head",
    "html_answer",
    "version_number",
]

# One more than the largest int64 has: enough to be too large.
DIGITS = 20
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
    """What a client gets; `closes` ends the connection after it, `code` is the canonical status behind it."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False
    code: Code = Code.OK


Work = Callable[[], "Answer | AwaitedWork"]


@dataclass(frozen=True)
class AwaitedWork:
    """Work that first waits for others; it can be done like any other, or without a thread for the wait.

    `begin` is given who waits, and returns what to do when the wait is over: that is short, and may leave
    long work. An answer from `begin` ends it at once.
    """

    begin: Callable[[Waiter], Answer | Callable[[], Answer | Work]]

    def __call__(self) -> Answer:
        """Return the answer; the calling thread waits."""
        gate = threading.Lock()
        gate.acquire()
        step = self.begin(Waiter(gate.release))
        if isinstance(step, Answer):
            return step
        gate.acquire()
        outcome = step()
        while not isinstance(outcome, Answer):
            outcome = outcome()
        return outcome

    def finished(self, finish: Callable[[Answer], Answer]) -> AwaitedWork:
        """Return the same work with an answer that goes through `finish`."""

        def begin(waiter: Waiter) -> Answer | Callable[[], Answer | Work]:
            step = self.begin(waiter)
            return finish(step) if isinstance(step, Answer) else lambda: finished(step(), finish)

        return AwaitedWork(begin)


Handler = Callable[[Request], Answer | Work]


def finished(outcome: Answer | Work, finish: Callable[[Answer], Answer]) -> Answer | Work:
    """Return an outcome whose answer goes through `finish`, now or when its work is done."""
    if isinstance(outcome, Answer):
        return finish(outcome)
    if isinstance(outcome, AwaitedWork):
        return outcome.finished(finish)
    work = outcome

    def finished_work() -> Answer | AwaitedWork:
        made = work()
        return finish(made) if isinstance(made, Answer) else made.finished(finish)

    return finished_work


def head(answer: Answer, connection: str | None) -> bytes:
    """Return the status line and headers of an answer; `connection` is the Connection header, if any."""
    beginning = _beginning(answer.status, answer.content_type, int(time.time()))
    more = "".join([f"{name}: {value}\r\n" for name, value in answer.headers]) if answer.headers else ""
    if connection:
        more += f"Connection: {connection}\r\n"
    return f"{beginning}{len(answer.body)}\r\n{more}\r\n".encode("latin-1")


@lru_cache(maxsize=16)
def _beginning(status: int, content_type: str, second: int) -> str:
    """Return a head as far as the answers of one second, status and type have it in common."""
    reason = KNOWN_STATUSES.get(status, "Client Error")
    date = formatdate(second, usegmt=True)
    return f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nDate: {date}\r\nContent-Length: "


def html_answer(status: HTTPStatus) -> Answer:
    """Return the page with which TensorFlow Serving's HTTP library refuses, and closes the connection."""
    title = status.phrase
    page = (
        f"<HTML><HEAD>\n<TITLE>{status.value} {title}</TITLE>\n</HEAD>"
        f"<BODY>\n<H1>{title}</H1>\n</BODY></HTML>\n"
    )
    return Answer(status.value, page.encode(), "text/html", closes=True)


def version_number(digits: str) -> int:
    """Return the version that a path names; more digits than a version has are not read to the end."""
    return int(digits.lstrip("0")[:DIGITS] or "0")
