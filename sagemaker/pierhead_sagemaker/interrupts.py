"""Ctrl-C, SIGTERM and a closed terminal as something to wait for, instead of an exception at any line."""

from __future__ import annotations

import queue
import signal
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Within its `with`, SIGINT, SIGTERM and SIGHUP are queued; afterwards they act as before."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            # nohup ignores SIGHUP, so that the terminal can be closed; that is kept.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._enqueue)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def wait(self, seconds: float) -> bool:
        """Wait for the next one, at most so long; tell whether it came. Each is told once."""
        try:
            self._inbox.get(timeout=seconds)
        except queue.Empty:
            return False
        return True

    def _enqueue(self, number: int, _frame: FrameType | None) -> None:
        self._inbox.put(number)
