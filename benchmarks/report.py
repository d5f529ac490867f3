"""The figures as tables in Markdown: each a median, with the least and the greatest of the rounds."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.conversion import Conversion
from benchmarks.scenarios import Sample, Scenario

__all__ = ["conversion_table", "floor_table", "load_table", "page"]

PACKAGES = ("tensorflow-cpu", "numpy", "pysimdjson", "httptools", "grpcio")
PAGE = """\
# Performance

<!-- Written by `make bench`. -->

What one embedded model server costs, measured by `make bench` from outside; clients are processes of their
own on the same machine, one request in flight on each connection. Every figure is the median of {rounds}
rounds that take turns, with the least and the greatest in brackets. Figures from two machines, or from two
runs on a busy one, say little about each other: compare lines of one run.

{machine}

## Requests

"Server CPU" is the processor time of the server's process for each answer, all threads. The constant answer
comes from the same HTTP protocol class with no model behind it, and is the floor of the REST lines.

{loads}

## The model alone

The model's own call in a loop in one process, through the runtime that the server uses, without any door.

{floors}

## Conversion alone

Processor time between a body and numpy arrays, for each number.

{conversions}
"""


def page(rounds: int, loads: str, floors: str, conversions: str) -> str:
    """Return the page of the manual."""
    return PAGE.format(rounds=rounds, machine=machine(), loads=loads, floors=floors, conversions=conversions)


def machine() -> str:
    """Return one sentence on processor and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    processor = models[0] if models else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"Machine: {processor}, {cores} cores. Python {platform.python_version()}, {packages}."


def load_table(scenarios: Sequence[Scenario], samples: Sequence[Sequence[Sample]]) -> str:
    """Return a line for each scenario."""
    rows = []
    for scenario, each in zip(scenarios, samples, strict=True):
        loads = [sample.load for sample in each]
        rows.append(
            [
                scenario.name,
                str(scenario.clients),
                spread(load.requests_per_second for load in loads),
                spread((load.p50_ms for load in loads), 2),
                spread((load.p99_ms for load in loads), 2),
                spread(sample.server_cpu_us for sample in each),
                spread(load.client_cpu_us for load in loads),
            ]
        )
    heads = ["what", "clients", "requests/s", "p50 ms", "p99 ms", "server CPU us", "client CPU us"]
    return table(heads, rows)


def floor_table(floors: Mapping[str, Sequence[float]]) -> str:
    """Return a line for each model's call."""
    return table(["model", "CPU us"], [[name, spread(each)] for name, each in floors.items()])


def conversion_table(conversions: Sequence[Conversion]) -> str:
    """Return a line for each conversion."""
    rows = [
        [each.name, spread(each.nanoseconds), spread((second * 1e6 for second in each.seconds), 1)]
        for each in conversions
    ]
    return table(["what", "ns per number", "us in all"], rows)


def spread(values: Iterable[float], digits: int = 0) -> str:
    """Return the median, and the least and the greatest in brackets."""
    each = sorted(values)
    median, least, greatest = (
        f"{value:,.{digits}f}" for value in (statistics.median(each), each[0], each[-1])
    )
    return f"{median} ({least}-{greatest})"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
