"""The report of a soak in Markdown."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from benchmarks.report import machine, table
from benchmarks.soak.clients import Outcome
from benchmarks.soak.run import Run
from benchmarks.soak.verdict import broken_rules, growth

__all__ = ["render"]

HEAD = """\
# Soak

<!-- Written by `make soak`. -->

What the whole stack does under mixed traffic in every content type, with known right answers, while 5% of the
requests are hostile, 1% are large, and a model server or a handler worker is killed at random every few
seconds. Everything runs on one machine, clients included. Seed {seed}.

{machine}

{verdict}
"""
MEMORY_NOTE = """\
Memory is what ends with the process; growth is from the third to the last quarter of the longest life of each
program, when that was at least 100 s.
"""


def render(runs: Sequence[Run], seed: int) -> str:
    """Return the page."""
    broken = [f"- {run.plan.name}: {rule}" for run in runs for rule in broken_rules(run)]
    verdict = "Every rule held." if not broken else "Broken rules:\n\n" + "\n".join(broken)
    parts = [HEAD.format(seed=seed, machine=machine(), verdict=verdict)]
    for run in runs:
        parts += [
            f"## {run.plan.name}\n",
            _summary(run),
            _traffic(run),
            _hostility(run),
            _kills(run),
            _memory(run),
        ]
    return "\n".join(parts)


def _summary(run: Run) -> str:
    served = sum(each.status == 200 for each in run.outcomes)
    lost = sum(each.is_lost for each in run.outcomes)
    return (
        f"{len(run.outcomes):,} requests in {run.seconds:.0f} s from {run.plan.clients} clients: "
        f"{served:,} served, {lost:,} lost to a kill. {run.plan.servers} model servers, "
        f"{run.plan.workers} handler workers. "
        f"The stop took {run.stop_seconds:.1f} s, with exit status {run.exit_status}.\n"
    )


def _traffic(run: Run) -> str:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in run.outcomes:
        if not outcome.is_hostile:
            groups[_group(outcome.name)].append(outcome)
    rows = [_traffic_row(name, groups[name]) for name in sorted(groups)]
    heads = ["content type", "requests", "by status", "p50 ms", "p99 ms", "longest ms"]
    return table(heads, rows) + "\n"


def _group(name: str) -> str:
    sent = name.partition(" -> ")[0]
    return f"{sent}, large" if name.endswith("large") else sent


def _traffic_row(name: str, outcomes: Sequence[Outcome]) -> list[str]:
    milliseconds = sorted(1000 * each.seconds for each in outcomes)
    p50 = statistics.median(milliseconds)
    p99 = milliseconds[int(0.99 * (len(milliseconds) - 1))]
    return [
        name,
        f"{len(outcomes):,}",
        _statuses(outcomes),
        f"{p50:.1f}",
        f"{p99:.1f}",
        f"{milliseconds[-1]:.0f}",
    ]


def _statuses(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(each.status for each in outcomes)
    return ", ".join(f"{status or 'none'}: {count:,}" for status, count in sorted(counts.items()))


def _hostility(run: Run) -> str:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in run.outcomes:
        if outcome.is_hostile:
            groups[outcome.name].append(outcome)
    rows = [[name, _statuses(groups[name])] for name in sorted(groups)]
    return table(["hostile", "by status"], rows) + "\n"


def _kills(run: Run) -> str:
    rows = [
        [
            f"{kill.at - run.began:.0f}",
            kill.name,
            "never" if kill.mended_after is None else f"{kill.mended_after:.2f}",
        ]
        for kill in run.kills
    ]
    return table(["killed at s", "process", "well again after s"], rows) + "\n"


def _memory(run: Run) -> str:
    return (
        MEMORY_NOTE
        + "\n"
        + table(
            ["program", "processes", "longest life s", "MB at its end", "MB grown", "files opened"],
            list(_memory_rows(run)),
        )
        + "\n"
    )


def _memory_rows(run: Run) -> Iterator[list[str]]:
    for program in sorted(run.lives):
        lives = run.lives[program]
        longest = max(lives, key=lambda life: life.seconds)
        megabytes, descriptors = growth(longest)
        yield [
            program,
            str(len(lives)),
            f"{longest.seconds:.0f}",
            f"{longest.samples[-1].private:.0f}",
            f"{megabytes:+.1f}",
            f"{descriptors:+d}",
        ]
