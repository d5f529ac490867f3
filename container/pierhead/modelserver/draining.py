"""The end of a version: its runs finish, then its runtime is closed and its memory given back.

Whoever runs a version refers to its servable. The servable's end is watched through a weak reference, which
costs a request nothing and cannot be forgotten on any way out of it.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pierhead.modelserver.runtimes.base import Runtime

__all__ = ["Withdrawn"]

LOG = logging.getLogger(__name__)
STEP_SECONDS = 1.0


class Withdrawn:
    """A servable that no request can find any more, with what to call when its runtime is closed.

    `holder` is the servable itself; its maker has to let go of it, too.
    """

    def __init__(self, holder: object, runtime: Runtime, closed: Callable[[], None]) -> None:
        self._dropped = threading.Event()
        self._watch = weakref.ref(holder, lambda _: self._dropped.set())
        self._runtime: Runtime | None = runtime
        self._closed = closed

    def close(self, seconds: float = float("inf"), slot: AbstractContextManager[Any] | None = None) -> None:
        """Wait for the runs, at most so long, then close the runtime inside `slot`."""
        if not self._is_dropped_within(seconds):
            LOG.warning("closed while somebody holds it: %r", self._watch())
        with slot or nullcontext():
            self._close_runtime()
        self._closed()

    def _is_dropped_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._dropped.wait(min(STEP_SECONDS, seconds)):
            if time.monotonic() >= deadline:
                return False
            # The last reference may be in a cycle, such as a traceback's.
            gc.collect()
        return True

    def _close_runtime(self) -> None:
        runtime, self._runtime = self._runtime, None
        try:
            if runtime:
                runtime.unload()
        except Exception:
            LOG.exception("a runtime did not close cleanly")
        del runtime
        # A graph refers to itself: what is left of it would stay until some later collection.
        gc.collect()
