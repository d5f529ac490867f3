"""Work that returns every so many seconds, in a thread of its own.

The two looks of a model server, for new versions and for a new config file, are slow on a network's file
system, and a new config waits for its models: so both stay away from the threads that answer requests, and
from each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["Poller"]

LOG = logging.getLogger(__name__)


class Poller:
    """Does some work every `seconds` until it is stopped, for the first time after that pause."""

    def __init__(self, seconds: float, work: Callable[[], object]) -> None:
        self._seconds = seconds
        self._work = work
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="polling", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Begin the work no more, and wait at most `seconds` for work that is under way."""
        self._stopped.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._work()
            except Exception:
                LOG.exception("periodic work failed; it is tried again in %g s", self._seconds)
