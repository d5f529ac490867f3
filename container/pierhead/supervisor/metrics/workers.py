"""The metrics of the handler workers, read from the files in which prometheus_client keeps them.

Each worker maps files of its own, `KIND_PID.db`, and changes them in place; hooks that use prometheus_client
write into the same. Reading files asks nothing of a worker, so that a busy one delays no page. What a worker
that has ended counted is added to a total here, and its files are removed; its gauges end with it.
"""

from __future__ import annotations

import json
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pierhead.prometheus_text import Labels, Metric, Page

__all__ = ["WorkerMetrics", "is_running"]

FILE = re.compile(r"(counter|histogram|summary|gauge_([a-z]+))_(\d+)\.db")
FOREIGN = re.compile(r"[^a-zA-Z0-9_:]")
HEADER = 8
LENGTH = struct.Struct("i")
VALUE = struct.Struct("dd")
EACH_PID = {"all", "liveall"}


@dataclass(frozen=True)
class Entry:
    """A value of one worker; `mode` says how a gauge's values of several workers become one."""

    kind: str
    mode: str
    pid: str
    key: str
    value: float
    time: float


@dataclass
class Buckets:
    """The single buckets of a histogram by their upper ends."""

    counts: dict[float, float] = field(default_factory=dict)
    total: float = 0.0


class WorkerMetrics:
    """What all workers have counted, those that have ended too."""

    name = "workers"

    def __init__(self, folder: Path, is_running: Callable[[int], bool]) -> None:
        self._folder = folder
        self._is_running = is_running
        self._lock = threading.Lock()
        self._ended: dict[tuple[str, str], float] = {}
        self._page = Page()

    def refresh(self, _deadline: float) -> None:
        """Read the files; raise OSError or ValueError where one cannot be."""
        with self._lock:
            entries = [entry for path in sorted(self._folder.glob("*.db")) for entry in self._entries(path)]
            totals = dict(self._ended)
            for entry in entries:
                if entry.kind != "gauge":
                    at = entry.kind, entry.key
                    totals[at] = totals.get(at, 0.0) + entry.value
            page = Page()
            _add_totals(page, totals)
            _add_gauges(page, entries)
            self._page = page

    def page(self) -> Page:
        """Return what was read last."""
        return self._page

    def _entries(self, path: Path) -> Iterator[Entry]:
        """Yield the values of a worker that runs; add those of one that has ended to the totals."""
        match = FILE.fullmatch(path.name)
        if match is None:
            return
        kind, mode, pid = match[1].partition("_")[0], match[2] or "", match[3]
        # Asked first: the file of a worker that has ended changes no more.
        is_running = self._is_running(int(pid))
        data = path.read_bytes()
        if not is_running:
            path.unlink()
        for key, value, time in _values(data):
            if is_running:
                yield Entry(kind, mode, pid, key, value, time)
            elif kind != "gauge":
                self._ended[kind, key] = self._ended.get((kind, key), 0.0) + value


def is_running(pid: int) -> bool:
    """Return whether a process of ours has this pid."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _values(data: bytes) -> Iterator[tuple[str, float, float]]:
    """Yield key, value and time of a file: each a length, a key padded to 8 bytes, and two doubles."""
    used = min(LENGTH.unpack_from(data)[0], len(data)) if len(data) >= HEADER else 0
    position = HEADER
    while position < used:
        (length,) = LENGTH.unpack_from(data, position)
        start = position + LENGTH.size
        end = start + length + 8 - (length + LENGTH.size) % 8
        if length < 0 or end + VALUE.size > used:
            raise ValueError("a file of prometheus_client is damaged")
        value, time = VALUE.unpack_from(data, end)
        yield data[start : start + length].decode(), value, time
        position = end + VALUE.size


def _add_totals(page: Page, totals: dict[tuple[str, str], float]) -> None:
    histograms: dict[tuple[Metric, Labels], Buckets] = {}
    for (kind, key), value in totals.items():
        family, name, labels, sentence = _read_key(key)
        # Of a counter the family has its sample's name in this format.
        metric = Metric(name if kind == "counter" else family, kind, sentence)
        if kind != "histogram":
            page.family(metric).add((name, labels), value)
            continue
        ends = [float(end) for label, end in labels if label == "le"]
        labels = tuple(label for label in labels if label[0] != "le")
        buckets = histograms.setdefault((metric, labels), Buckets())
        if ends:
            buckets.counts[ends[0]] = value
        else:
            buckets.total = value
    for (metric, labels), buckets in histograms.items():
        limits = sorted(buckets.counts)
        counts = [int(buckets.counts[limit]) for limit in limits]
        page.add_histogram(metric, labels, limits[:-1], counts, buckets.total)


def _add_gauges(page: Page, entries: list[Entry]) -> None:
    times: dict[str, float] = {}
    for entry in entries:
        if entry.kind != "gauge":
            continue
        family, name, labels, sentence = _read_key(entry.key)
        samples = page.family(Metric(family, "gauge", sentence)).samples
        if entry.mode in EACH_PID:
            labels = (*labels, ("pid", entry.pid))
        at, value = (name, labels), entry.value
        if at not in samples:
            samples[at] = value
        elif entry.mode.endswith("sum"):
            samples[at] += value
        elif entry.mode.endswith(("min", "max")):
            samples[at] = (min if entry.mode.endswith("min") else max)(samples[at], value)
        elif entry.time > times.get(entry.key, 0.0):
            samples[at] = value
        times[entry.key] = max(entry.time, times.get(entry.key, 0.0))


def _read_key(key: str) -> tuple[str, str, Labels, str]:
    """Return the names of metric and sample, the labels and the help that a file's key holds."""
    family, name, labels, sentence = json.loads(key)
    pairs = tuple((_plain(label), str(value)) for label, value in sorted(labels.items()))
    return _plain(family), _plain(name), pairs, str(sentence)


def _plain(name: str) -> str:
    """Return a name in the letters of the format; newer versions of prometheus_client allow any."""
    return FOREIGN.sub("_", name)
