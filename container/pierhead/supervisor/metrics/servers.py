"""The metrics of the model servers: each server's own page, fetched, and summed over the lives of the server.

A server that is started again counts from nothing. What its predecessor had counted when it was last asked is
kept here, so that no total on the page falls, and a server that does not answer keeps what it had.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pierhead.prometheus_text import Metric, Page, SampleKey, read_page

__all__ = ["MONITORING_CONFIG", "RisingTotal", "ServerMetrics"]

PATH = "/monitoring/prometheus/metrics"
MONITORING_CONFIG = f"prometheus_config {{ enable: true path: '{PATH}' }}\n"
MOST_SAMPLES = 40_000
LONGEST_PAGE = 8 << 20
CHUNK = 1 << 16
OK = 200
SENTENCE = "As the model servers have it, summed over them."
RISING = {"counter", "histogram", "summary"}


@dataclass
class RisingTotal:
    """A total that never falls: what a process has counted, and what those before it had."""

    pid: int | None = None
    present: float = 0.0
    past: float = 0.0

    def update(self, pid: int | None, value: float) -> float:
        """Take what the process `pid` has counted, and return the total."""
        if pid != self.pid:
            self.pid, self.past, self.present = pid, self.past + self.present, 0.0
        self.present = max(self.present, value)
        return self.past + self.present


class ServerMetrics:
    """The page of one model server."""

    def __init__(self, name: str, rest_port: int, pid: Callable[[], int | None]) -> None:
        self.name = name
        self._rest_port = rest_port
        self._pid = pid
        self._lock = threading.Lock()
        self._totals: dict[SampleKey, RisingTotal] = {}
        self._page = Page()

    def refresh(self, deadline: float) -> None:
        """Ask the server; raise OSError or HTTPException where it does not answer in time."""
        pid = self._pid()
        text = _fetch(self._rest_port, deadline)
        fresh = read_page(text.decode(errors="replace"), SENTENCE, MOST_SAMPLES)
        with self._lock:
            if pid is None or pid != self._pid():
                raise OSError("it was started again meanwhile")
            self._page = self._summed(fresh, pid)

    def page(self) -> Page:
        """Return what was last fetched, with what the server's predecessors counted."""
        with self._lock:
            return self._page

    def _summed(self, fresh: Page, pid: int) -> Page:
        summed = Page()
        for name, family in (self._page.families | fresh.families).items():
            samples = summed.family(Metric(name, family.kind, family.sentence)).samples
            present, past = _samples(fresh, name), _samples(self._page, name)
            if family.kind not in RISING:
                samples.update(present)
                continue
            for key in past | present:
                if key in self._totals or len(self._totals) < MOST_SAMPLES:
                    total = self._totals.setdefault(key, RisingTotal())
                    samples[key] = total.update(pid, present.get(key, 0.0))
        return summed


def _samples(page: Page, name: str) -> dict[SampleKey, float]:
    family = page.families.get(name)
    return family.samples if family else {}


def _fetch(port: int, deadline: float) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_seconds_to(deadline))
    try:
        connection.request("GET", PATH)
        # The connection lets go of it where the answer's end is the connection's.
        sock = connection.sock
        sock.settimeout(_seconds_to(deadline))
        response = connection.getresponse()
        if response.status != OK:
            raise OSError(f"it answered with status {response.status}")
        received = bytearray()
        while chunk := response.read1(CHUNK):
            received += chunk
            if len(received) > LONGEST_PAGE:
                raise OSError("its page is too long")
            if not response.isclosed():
                sock.settimeout(_seconds_to(deadline))
        return bytes(received)
    finally:
        connection.close()


def _seconds_to(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("it did not answer in time")
    return seconds
