"""The one place that writes to the terminal: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["Progress", "complain", "say"]

CLEAR_LINE = "\r\x1b[K"
SECONDS_BETWEEN_LINES = 10


def say(text: str) -> None:
    """Write a result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write what is not a result: an error, a note on what goes on."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Progress:
    """How long something takes: one line renewed each second on a terminal, else a line every 10 s."""

    def __init__(self, what: str, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._stream = stream
        self._clock = clock
        self._begin = clock()
        self._renews = stream.isatty()
        self._shown = 0

    @property
    def seconds(self) -> float:
        """The seconds since it began."""
        return self._clock() - self._begin

    def show(self) -> None:
        """Write the seconds so far, where it is time to."""
        elapsed = int(self.seconds)
        if elapsed < self._shown + (1 if self._renews else SECONDS_BETWEEN_LINES):
            return
        self._shown = elapsed
        text = f"{self._what}: {elapsed} s"
        # The cursor goes back to the line's begin, so that a log line of the container starts there.
        self._stream.write(f"{CLEAR_LINE}{text}\r" if self._renews else f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away again."""
        if self._renews:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()
