"""Counts the requests that nginx answered, from lines that it writes into a pipe.

nginx collects its lines and writes some hundred at once, so that a request costs it next to nothing and the
supervisor a microsecond. A pipe loses no line, where a datagram to a busy reader would be dropped; only an
nginx worker that is killed outright takes with it what it had not written, a quarter of a second at most.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_left
from collections import Counter
from pathlib import Path

from pierhead.prometheus_text import Metric, Page
from pierhead.supervisor.named_pipe import NamedPipe

__all__ = ["METRICS", "RequestLog"]

LIMITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LINE = re.compile(rb"([a-z]{1,16}) (\d{3}) (\d{1,9}\.\d{3})")
LONGEST_LINE = 1 << 16
REQUESTS = Metric(
    "pierhead_http_requests_total",
    "counter",
    "Requests that nginx answered; 499: the client left before its answer.",
    ("route", "status"),
)
SECONDS = Metric(
    "pierhead_http_request_duration_seconds",
    "histogram",
    "From a request's first byte to its answer's last, at nginx, whose clock counts milliseconds.",
    ("route",),
)
UNREAD = Metric("pierhead_http_request_lines_unread_total", "counter", "Lines of nginx that made no sense.")
METRICS = (REQUESTS, SECONDS, UNREAD)


class RequestLog:
    """The pipe, the thread that reads it, and what has been counted."""

    name = "nginx"

    def __init__(self, path: Path) -> None:
        self._pipe = NamedPipe(path, self._take)
        self._rest = b""
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self._unread = 0

    def open(self) -> None:
        """Start to read."""
        self._pipe.open()

    def close(self) -> None:
        """Stop to read."""
        self._pipe.close()

    def refresh(self, _deadline: float) -> None:
        """Do nothing: what has come is counted; raise OSError where the reader is gone."""
        if not self._pipe.is_read:
            raise OSError("nginx's lines are not read")

    def page(self) -> Page:
        """Return what has been counted."""
        page = Page()
        with self._lock:
            for (route, status), count in sorted(self._requests.items()):
                page.set(REQUESTS, count, route, status)
            for route, counts in sorted(self._buckets.items()):
                page.add_histogram(SECONDS, (("route", route),), LIMITS, counts, self._seconds[route] / 1000)
            page.set(UNREAD, self._unread)
        return page

    def _take(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:LONGEST_LINE]
        # Most lines are alike, so that few are left to be looked at.
        self._count(Counter(lines))

    def _count(self, lines: Counter[bytes]) -> None:
        with self._lock:
            for line, count in lines.items():
                match = LINE.fullmatch(line)
                if match is None:
                    self._unread += count if line else 0
                    continue
                route, status, seconds = (part.decode() for part in match.groups())
                self._requests[route, status] += count
                buckets = self._buckets.setdefault(route, [0] * (len(LIMITS) + 1))
                buckets[bisect_left(LIMITS, float(seconds))] += count
                # Whole milliseconds: a sum of fractions would drift.
                self._seconds[route] += count * math.floor(float(seconds) * 1000 + 0.5)
