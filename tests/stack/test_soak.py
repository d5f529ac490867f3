"""A short soak: no wrong answer and no hang under mixed and hostile traffic, while processes are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.soak.page import render
from benchmarks.soak.run import Plan, perform
from benchmarks.soak.verdict import broken_rules


def test_a_short_soak_breaks_no_rule(
    half_plus_two: Path, free_ports: Callable[[int], int], tmp_path: Path
) -> None:
    plan = Plan("short", has_hooks=True, seconds=10, seed=11, clients=4, kill_every=4, servers=2)

    run = perform(plan, half_plus_two, tmp_path, free_ports(9))

    assert broken_rules(run) == [], run.log
    assert len(run.kills) == 2
    assert "Every rule held." in render([run], plan.seed)
