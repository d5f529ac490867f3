"""What the supervisor itself knows: the programs of the stack, their restarts, and what they use.

Memory and processor time come from /proc. A program is the process group that its first process leads, so
that gunicorn counts with its workers and nginx with its own.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pierhead
from pierhead.prometheus_text import Metric, Page
from pierhead.supervisor.metrics.servers import RisingTotal
from pierhead.supervisor.stack import Stack
from pierhead.supervisor.states import State

__all__ = ["METRICS", "ProcessMetrics"]

SUPERVISOR, HANDLER_WORKER = "supervisor", "handler-worker"
BUILD = Metric(
    "pierhead_build_info", "gauge", "1, with what runs here.", ("version", "python", "model_server")
)
READY = Metric("pierhead_ready", "gauge", "1 while /ping answers 200, else 0.")
UPTIME = Metric("pierhead_uptime_seconds", "gauge", "Seconds since the supervisor was started.")
UP = Metric("pierhead_process_up", "gauge", "1 while the process is ready, else 0.", ("process",))
RESTARTS = Metric(
    "pierhead_process_restarts_total",
    "counter",
    "Processes that ended and were replaced; of handler workers also those that were recycled.",
    ("process", "reason"),
)
MEMORY = Metric(
    "pierhead_process_resident_memory_bytes",
    "gauge",
    "Resident memory of a program's processes; pages that they share are counted in each.",
    ("process",),
)
CPU = Metric(
    "pierhead_process_cpu_seconds_total",
    "counter",
    "Processor time of a program's processes, also of those that have ended.",
    ("process",),
)
METRICS = (BUILD, READY, UPTIME, UP, RESTARTS, MEMORY, CPU)


@dataclass
class Usage:
    """What processes use."""

    cpu_ticks: int = 0
    pages: int = 0


class ProcessMetrics:
    """The stack as its supervisor sees it."""

    name = "processes"

    def __init__(self, stack: Stack, model_server: str) -> None:
        self._stack = stack
        self._model_server = model_server
        self._started = time.monotonic()
        self._cpu: defaultdict[str, RisingTotal] = defaultdict(RisingTotal)
        self._page = Page()

    def refresh(self, _deadline: float) -> None:
        """Look at all processes."""
        page = Page()
        page.set(BUILD, 1, pierhead.__version__, platform.python_version(), self._model_server)
        page.set(READY, 0 if self._stack.not_ready() else 1)
        page.set(UPTIME, round(time.monotonic() - self._started, 3))
        self._add_states(page)
        self._add_usage(page)
        self._page = page

    def page(self) -> Page:
        """Return what was seen last."""
        return self._page

    def _add_states(self, page: Page) -> None:
        for process in self._stack.processes.values():
            page.set(UP, int(process.state is State.READY), process.name)
            for reason, count in sorted(process.restarts.items()):
                page.set(RESTARTS, count, process.name, reason)
        for reason, count in sorted(self._stack.worker_restarts.items()):
            page.set(RESTARTS, count, HANDLER_WORKER, reason)

    def _add_usage(self, page: Page) -> None:
        groups = _usage_by_group()
        # The kernel's own processes are of group 0.
        used = {
            process.name: (process.pid, groups[process.pid] if process.pid else Usage())
            for process in self._stack.processes.values()
        }
        for name, (pid, usage) in {SUPERVISOR: (os.getpid(), _own_usage()), **used}.items():
            page.set(MEMORY, usage.pages * os.sysconf("SC_PAGE_SIZE"), name)
            seconds = usage.cpu_ticks / os.sysconf("SC_CLK_TCK")
            page.set(CPU, self._cpu[name].update(pid, seconds), name)
        # Models come and go under ever new names.
        for name in self._cpu.keys() - used.keys() - {SUPERVISOR}:
            del self._cpu[name]


def _usage_by_group() -> defaultdict[int, Usage]:
    """Return what the processes of each group use; children that were waited for count with their parent."""
    groups: defaultdict[int, Usage] = defaultdict(Usage)
    for numbers in _stat_fields():
        usage = groups[numbers[1]]
        usage.cpu_ticks += sum(numbers[10:14])
        usage.pages += numbers[20]
    return groups


def _own_usage() -> Usage:
    """Return what this process uses, without its children."""
    numbers = _numbers(Path("/proc/self/stat"))
    return Usage(sum(numbers[10:12]), numbers[20]) if numbers else Usage()


def _stat_fields() -> Iterator[list[int]]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        if numbers := _numbers(entry):
            yield numbers


def _numbers(path: Path) -> list[int]:
    """Return the fields of a stat file from the parent's pid on; none of a process that is gone."""
    with contextlib.suppress(OSError):
        return [int(text) for text in path.read_text(errors="replace").rpartition(") ")[2].split()[1:]]
    return []
