"""The page at /metrics: gathered from its parts side by side, within a bound, whoever hangs.

A part that does not come in time is shown with what it last had, and named. At most one page is in the
making; who asks meanwhile gets that one, so that no number of askers makes more work.
"""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pierhead.prometheus_text import Metric, Page

__all__ = ["METRICS", "MetricsPage", "Part"]

GATHER_SECONDS = 1.5
SWEEP_SECONDS = 30.0
PART_UP = Metric(
    "pierhead_scrape_part_up", "gauge", "0 where a part of this page is what it was at last.", ("part",)
)
DURATION = Metric("pierhead_scrape_duration_seconds", "gauge", "The time that gathering this page took.")
METRICS = (PART_UP, DURATION)
log = logging.getLogger(__name__)


class Part(Protocol):
    """Something that has metrics."""

    @property
    def name(self) -> str:
        """The name on the page."""

    def refresh(self, deadline: float) -> None:
        """Bring the part up to date by `deadline`, on the monotonic clock; raise an error if that fails."""

    def page(self) -> Page:
        """Return the metrics as they last were, at once."""


class Gathering:
    """One part's refreshing, in a thread of its own."""

    def __init__(self, part: Part, deadline: float) -> None:
        self.is_fresh = False
        self._part = part
        self._deadline = deadline
        self._thread = threading.Thread(target=self._refresh, name=f"metrics-{part.name}", daemon=True)
        self._thread.start()

    def wait(self) -> bool:
        """Wait until it is done, or its time is over; return whether the part is up to date."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        return self.is_fresh

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def _refresh(self) -> None:
        try:
            self._part.refresh(self._deadline)
        except (OSError, ValueError, http.client.HTTPException) as problem:
            log.debug("no metrics of %s: %s", self._part.name, problem)
        else:
            self.is_fresh = True


class MetricsPage:
    """Makes the page; parts are refreshed from time to time even when nobody asks for it.

    `passing` returns parts that come and go, as those of loaded models do.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        gather_seconds: float = GATHER_SECONDS,
        passing: Callable[[], Sequence[Part]] = tuple,
    ) -> None:
        self._parts = parts
        self._passing = passing
        self._gather_seconds = gather_seconds
        self._lock = threading.Lock()
        self._late: dict[str, Gathering] = {}
        self._made_at = float("-inf")
        self._text = b""
        self._is_closed = threading.Event()

    def open(self) -> None:
        """Start to sweep: files of handler workers that have ended must not pile up."""
        threading.Thread(target=self._sweep, name="metrics-sweep", daemon=True).start()

    def close(self) -> None:
        """Stop to sweep."""
        self._is_closed.set()

    def encode(self) -> bytes:
        """Return a page that was not finished before this call."""
        asked = time.monotonic()
        with self._lock:
            if self._made_at < asked:
                self._text = self._gathered(asked).encode()
                self._made_at = time.monotonic()
            return self._text

    def _gathered(self, asked: float) -> Page:
        deadline = time.monotonic() + self._gather_seconds
        self._late = {name: late for name, late in self._late.items() if not late.is_over}
        parts = (*self._parts, *self._passing())
        begun = {part.name: Gathering(part, deadline) for part in parts if part.name not in self._late}
        page = Page()
        for part in parts:
            gathering = begun.get(part.name)
            is_fresh = gathering is not None and gathering.wait()
            if gathering is not None and not gathering.is_over:
                self._late[part.name] = gathering
            page.set(PART_UP, int(is_fresh), part.name)
            page.merge(part.page())
        page.set(DURATION, round(time.monotonic() - asked, 6))
        return page

    def _sweep(self) -> None:
        while not self._is_closed.wait(SWEEP_SECONDS):
            self.encode()
