"""Kills a random process of the stack every few seconds, and measures how long the stack takes to mend.

The last model server and the oldest handler worker are spared: they live through the run, and show whether
memory grows.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from running_stack import RunningStack, descendants

__all__ = ["Kill", "Killer"]

# Six deaths of one process without a minute's life between them end the container on purpose.
MOST_KILLS = 4
MEND_SECONDS = 30.0
WORKER = "a handler worker"


@dataclass(frozen=True)
class Kill:
    """Who was killed when, and after how long all was well again; None where it never was."""

    name: str
    at: float
    mended_after: float | None


@dataclass
class Killer:
    """Kills until it is told to stop."""

    stack: RunningStack
    random_: random.Random
    every: float
    servers: int
    has_workers: bool
    kills: list[Kill] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, with the first kill after one pause."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End, once the last kill is mended or given up."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2 * MEND_SECONDS)

    def _run(self) -> None:
        counts: Counter[str] = Counter()
        names = [f"model-server-{number + 1}" for number in range(self.servers - 1)]
        names += [WORKER] * (2 if self.has_workers else 0)
        while not self._stopping.wait(self.every):
            left = [name for name in names if name == WORKER or counts[name] < MOST_KILLS]
            if not left:
                return
            name = self.random_.choice(left)
            counts[name] += 1
            self.kills.append(self._kill(name))

    def _kill(self, name: str) -> Kill:
        pid = self._pid(name)
        before = len(self._workers())
        at = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while time.monotonic() < at + MEND_SECONDS:
            time.sleep(0.02)
            if self._is_mended(name, pid, before):
                return Kill(name, at, time.monotonic() - at)
        return Kill(name, at, None)

    def _pid(self, name: str) -> int:
        return max(self._workers()) if name == WORKER else self.stack.pid_of(name)

    def _is_mended(self, name: str, pid: int, before: int) -> bool:
        if name == WORKER:
            workers = self._workers()
            is_back = pid not in workers and len(workers) >= before
        else:
            is_back = self.stack.pid_of(name) != pid
        return is_back and self.stack.ping() == 200

    def _workers(self) -> list[int]:
        if not self.has_workers:
            return []
        try:
            return list(descendants(self.stack.pid_of("handler-workers")))
        except OSError:
            return []
