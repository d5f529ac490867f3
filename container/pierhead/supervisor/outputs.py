"""Makes what the processes write by themselves part of the log: nginx, pip, C++ libraries, stray prints.

Each process has a pipe of its own as standard output and error, and here a thread that reads it line by
line, and keeps the last ones, which may say why it ended. What our own Python programs log does not come this
way: they inherit the log and write to it themselves, for they know more of each line.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from pierhead.logs import Event, LogWriter
from pierhead.supervisor.process import ProcessSpec

__all__ = ["Outputs", "read_line"]

LONGEST_LINE = 1 << 16
# A line without an end is not waited for any longer.
PATIENCE_MS = 300
KEPT_LINES = 20
LAST_WORDS_SECONDS = 1.0
LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
NGINX_LINE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\w+)\] (?:\d+#\d+: )?(.*)", re.DOTALL)
TENSORFLOW_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) (.*)", re.DOTALL)
ABSEIL_LINE = re.compile(r"([IWEF])\d{4} \d\d:\d\d:[\d.]+ +\d+ (.*)", re.DOTALL)
LEVELS: Mapping[str, str] = MappingProxyType(
    {
        "debug": "DEBUG",
        "warn": "WARNING",
        "error": "ERROR",
        "crit": "CRITICAL",
        "alert": "CRITICAL",
        "emerg": "CRITICAL",
        "W": "WARNING",
        "E": "ERROR",
        "F": "CRITICAL",
    }
)


def read_line(text: str) -> tuple[str, str]:
    """Return level and message of a line that is no event yet; INFO where it does not begin with a level."""
    for kind in (NGINX_LINE, TENSORFLOW_LINE, ABSEIL_LINE):
        if found := kind.fullmatch(text):
            return LEVELS.get(found[1], "INFO"), found[2]
    return "INFO", text


class Reader(threading.Thread):
    """Reads one pipe to its end; `last_lines` are the messages of those read so far."""

    def __init__(self, program: str, descriptor: int, log: LogWriter) -> None:
        super().__init__(daemon=True)
        self.last_lines: tuple[str, ...] = ()
        self.program = program
        self._descriptor, self._log = descriptor, log

    def run(self) -> None:
        """Make each line part of the log."""
        with contextlib.closing(os.fdopen(self._descriptor, "rb", buffering=0)):
            for is_begin, line in _lines(self._descriptor):
                if line.strip():
                    level, message = read_line(line.decode(errors="backslashreplace"))
                    self._keep(message, is_begin)
                    self._log.tell(Event(time.time(), level, self.program, message))

    def _keep(self, message: str, is_begin: bool) -> None:
        """Keep a line; a later part of one is no line of its own, whatever it looks like."""
        if is_begin or not self.last_lines:
            self.last_lines = (*self.last_lines, message)[-KEPT_LINES:]
        else:
            *before, unfinished = self.last_lines
            self.last_lines = (*before, (unfinished + message)[:LONGEST_LINE])


class Outputs:
    """The pipes of all processes."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._readers: list[Reader] = []
        self._latest: dict[str, Reader] = {}

    @contextlib.contextmanager
    def pipe(self, spec: ProcessSpec) -> Iterator[list[tuple[int, int, int]]]:
        """Yield the file actions that give a new process its pipe, which it alone holds afterwards."""
        reader, writer = os.pipe()
        if spec.keeps_stdout:
            # nginx must never wait for its log: what finds no room is lost.
            os.set_blocking(writer, False)
        try:
            descriptors = (2,) if spec.keeps_stdout else (1, 2)
            yield [(os.POSIX_SPAWN_DUP2, writer, descriptor) for descriptor in descriptors]
        finally:
            os.close(writer)
            self._start(Reader(spec.name, reader, self._log))

    def close(self, seconds: float) -> None:
        """Wait until all that was written is passed on; a pipe that somebody still holds is given up then."""
        deadline = time.monotonic() + seconds
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def last_lines(self, name: str, seconds: float = LAST_WORDS_SECONDS) -> tuple[str, ...]:
        """Return the last lines of the latest process of a name, as in the log without time and level.

        The end of a process may be seen before its last line: so they are waited for, but no longer than
        this, since a child that it left behind may hold the pipe.
        """
        reader = self._latest.get(name)
        if reader is None:
            return ()
        reader.join(seconds)
        return reader.last_lines

    def forget(self, name: str) -> None:
        """Keep no lines of a process that is not started again."""
        self._latest.pop(name, None)

    def _start(self, reader: Reader) -> None:
        self._readers = [each for each in self._readers if each.is_alive()] + [reader]
        self._latest[reader.program] = reader
        reader.start()


def _lines(reader: int) -> Iterator[tuple[bool, bytes]]:
    """Yield lines as they are finished, or as far as they have come when nothing follows or one is too long.

    With each comes whether it is the beginning of a line.
    """
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    is_begin, rest = True, b""
    while True:
        if rest and not poll.poll(PATIENCE_MS):
            yield is_begin, rest
            is_begin, rest = False, b""
        chunk = os.read(reader, LONGEST_LINE)
        *lines, rest = LINE_END.split(rest + chunk)
        for line in lines:
            yield is_begin, line
            is_begin = True
        if not chunk or len(rest) >= LONGEST_LINE:
            yield is_begin, rest
            is_begin, rest = False, b""
        if not chunk:
            return
