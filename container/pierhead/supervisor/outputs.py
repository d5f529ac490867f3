"""Makes what the processes write by themselves part of the log: nginx, pip, C++ libraries, stray prints.

Each process has a pipe of its own as standard output and error, and here a thread that reads it line by
line. What our own Python programs log does not come this way: they inherit the log and write to it
themselves, for they know more of each line.
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


class Outputs:
    """The pipes of all processes."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._threads: list[threading.Thread] = []

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
            thread = threading.Thread(target=self._read, args=(spec.name, reader), daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def close(self, seconds: float) -> None:
        """Wait until all that was written is passed on; a pipe that somebody still holds is given up then."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _read(self, program: str, reader: int) -> None:
        with contextlib.closing(os.fdopen(reader, "rb", buffering=0)):
            for line in _lines(reader):
                if line.strip():
                    level, message = read_line(line.decode(errors="backslashreplace"))
                    self._log.tell(Event(time.time(), level, program, message))


def _lines(reader: int) -> Iterator[bytes]:
    """Yield lines as they are finished, or as far as they have come when nothing follows."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    rest = b""
    while True:
        if rest and not poll.poll(PATIENCE_MS):
            yield rest
            rest = b""
        chunk = os.read(reader, LONGEST_LINE)
        *lines, rest = LINE_END.split(rest + chunk)
        yield from lines
        if not chunk or len(rest) >= LONGEST_LINE:
            yield rest
            rest = b""
        if not chunk:
            return
