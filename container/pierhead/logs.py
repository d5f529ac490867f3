"""How every program of the stack writes its log: one line an event, at once, as text or as JSON.

A line names its time (UTC), level, program and, where there is one, request. Text continues an event of
several lines on indented ones; JSON never does. Whatever a message holds, no part of it can begin a line or
reach a terminal as a control character.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TextIO

__all__ = [
    "Event",
    "LineStream",
    "LogWriter",
    "admit_user_code",
    "configure_logging",
    "current_request_id",
    "keep_own_loggers",
    "request_in_log",
]

# These have a handler of their own, so that a user's set-up of the root logger neither doubles nor ends them.
OWN_LOGGERS = ("pierhead", "gunicorn")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LINE_ENDS = re.compile(r"\r\n|\n|\r")
CONTINUED = "\n    "
_request_id: ContextVar[str] = ContextVar("request_id", default="")


@dataclass(frozen=True)
class Event:
    """One thing to tell; `time` is in seconds since 1970."""

    time: float
    level: str
    program: str
    message: str
    request_id: str = ""

    def as_text(self) -> str:
        """Return `TIME LEVEL PROGRAM [REQUEST]: MESSAGE`."""
        request = f" [{_escaped(self.request_id)}]" if self.request_id else ""
        message = CONTINUED.join(map(_escaped, LINE_ENDS.split(self.message)))
        return f"{_utc(self.time)} {self.level} {self.program}{request}: {message}"

    def as_json(self) -> str:
        """Return an object of plain ASCII in one line."""
        fields = {"time": _utc(self.time), "level": self.level, "program": self.program}
        if self.request_id:
            fields["request_id"] = self.request_id
        return json.dumps(fields | {"message": self.message})


class LogWriter:
    """Writes events, one a line, to a file descriptor; for logging's handlers it is a stream of text."""

    def __init__(self, style: str = "text", descriptor: int = 2) -> None:
        self.line: Callable[[Event], str] = Event.as_json if style == "json" else Event.as_text
        self._descriptor = descriptor

    def tell(self, event: Event) -> None:
        """Write one event."""
        self.write(f"{self.line(event)}\n")

    def write(self, text: str) -> None:
        """Write by one call where the system takes it whole; a log that cannot be written is no error."""
        self.copy(text.encode())

    def copy(self, rest: bytes) -> None:
        """Write lines as they are."""
        with contextlib.suppress(OSError):
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [])

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


class EventFormatter(logging.Formatter):
    """Turns records into lines of one program."""

    def __init__(self, program: str, writer: LogWriter) -> None:
        super().__init__("%(message)s")
        self._program, self._writer = program, writer

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, in which its traceback is part of the message.

        Of arguments that do not fit their message one line tells, in place of logging's stack for each.
        """
        try:
            message = super().format(record)
        except Exception as problem:  # noqa: BLE001  # what is logged may raise anything
            place = f"{record.pathname}:{record.lineno}"
            message = f"not logged at {place}: {record.msg!r}: {type(problem).__name__}: {problem}"
        request_id = str(getattr(record, "request_id", "") or current_request_id())
        return self._writer.line(Event(record.created, record.levelname, self._program, message, request_id))


class RootHandler(logging.StreamHandler[LogWriter]):
    """Leaves a record alone that a handler of the user's own writes to the same log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, if nobody else does."""
        if not any(_writes_here(handler, record) for handler in _handlers(record.name)):
            super().emit(record)


class LineStream(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr: each line written to it is an event, with the request it is of.

    Unfinished lines are kept for each thread and greenlet until they are finished or flushed. Blank lines
    are left out. All else, such as `buffer` and `fileno`, is the original stream's.
    """

    def __init__(self, program: str, writer: LogWriter, original: TextIO) -> None:
        self._program, self._writer, self._original = program, writer, original
        self._unfinished: ContextVar[str] = ContextVar("unfinished", default="")

    def write(self, text: str, /) -> int:
        """Take text; write the lines that it ends."""
        *lines, rest = LINE_ENDS.split(self._unfinished.get() + text)
        self._unfinished.set(rest)
        for line in lines:
            self._tell(line)
        return len(text)

    def flush(self) -> None:
        """Write what has no end yet."""
        rest = self._unfinished.get()
        if rest:
            self._unfinished.set("")
            self._tell(rest)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of what is written."""
        return "utf-8"

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return False."""
        return False

    def fileno(self) -> int:
        """Return the original stream's descriptor."""
        return self._original.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def _tell(self, line: str) -> None:
        if line.strip():
            self._writer.tell(Event(time.time(), "INFO", self._program, line, current_request_id()))


def configure_logging(program: str, level: str = "info", writer: LogWriter | None = None) -> None:
    """Write this process's records of a level and above, each line naming the program."""
    root = logging.getLogger()
    root.handlers[:] = [_prepared(RootHandler, program, writer or LogWriter())]
    root.setLevel(level.upper())


def admit_user_code(program: str, writer: LogWriter) -> None:
    """Make what Python code prints part of the log, and our lines independent of its logging set-up.

    Every record of this process gets the attribute `request_id`.
    """
    sys.stdout = LineStream(program, writer, sys.stdout)
    sys.stderr = LineStream(program, writer, sys.stderr)
    for name in OWN_LOGGERS:
        own = logging.getLogger(name)
        own.handlers[:] = [_prepared(logging.StreamHandler, program, writer)]
        own.setLevel(logging.getLogger().level)
        own.propagate = False
    make_record = logging.getLogRecordFactory()

    def make_named_record(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make_record(*arguments, **named)
        record.request_id = current_request_id()
        return record

    logging.setLogRecordFactory(make_named_record)


@contextlib.contextmanager
def keep_own_loggers() -> Iterator[None]:
    """Undo what the code within does to our loggers: `logging.config` disables those it does not know."""
    loggers = {name: logging.getLogger(name) for name in OWN_LOGGERS}
    states = {name: (own.handlers[:], own.level, own.propagate) for name, own in loggers.items()}
    try:
        yield
    finally:
        for name, logger in logging.root.manager.loggerDict.items():
            if name.partition(".")[0] in OWN_LOGGERS and isinstance(logger, logging.Logger):
                logger.disabled = False
        for name, own in loggers.items():
            own.handlers[:], own.level, own.propagate = states[name]


def current_request_id() -> str:
    """Return the id of the request that this thread or greenlet works for; empty outside of one."""
    return _request_id.get()


@contextlib.contextmanager
def request_in_log(request_id: str) -> Iterator[None]:
    """Name the request in what is logged within."""
    before = _request_id.get()
    _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.set(before)


def _prepared(
    kind: type[logging.StreamHandler[LogWriter]], program: str, writer: LogWriter
) -> logging.Handler:
    handler = kind(writer)
    handler.setFormatter(EventFormatter(program, writer))
    return handler


def _handlers(name: str) -> Iterator[logging.Handler]:
    """Yield the handlers that a record of a logger reaches."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _writes_here(handler: logging.Handler, record: logging.LogRecord) -> bool:
    if not isinstance(handler, logging.StreamHandler) or record.levelno < handler.level:
        return False
    return isinstance(handler.stream, LineStream) or handler.stream in (sys.__stdout__, sys.__stderr__)


def _utc(seconds: float) -> str:
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{milliseconds:03d}Z"


def _escaped(text: str) -> str:
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)
