"""`make soak`: two runs of two minutes, onto the screen and into docs/soak.md; status 1 where a rule broke.

`SECONDS=60` makes it shorter, and leaves the page as it is; `SEED=7` repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.servers import CHECKOUT
from benchmarks.soak.page import render
from benchmarks.soak.run import Plan, Run, perform
from benchmarks.soak.verdict import broken_rules

PAGE = CHECKOUT / "docs" / "soak.md"
SECONDS = 240.0
FIRST_PORT = 18_080
LOG_LINES = 60


def main() -> int:
    """Soak, print, and write the page."""
    seconds = float(os.environ.get("SECONDS") or SECONDS)
    seed = int(os.environ.get("SEED") or random.randrange(1_000_000))  # noqa: S311 - to be repeated, not secret
    sys.stdout.write(f"seed {seed}\n")
    runs = soak(seconds, seed)
    text = render(runs, seed)
    sys.stdout.write(text)
    broken = [run for run in runs if broken_rules(run)]
    for run in broken:
        sys.stdout.write("\n".join(run.log.splitlines()[-LOG_LINES:]) + "\n")
    if seconds == SECONDS:
        PAGE.write_text(text)
    return 1 if broken else 0


def soak(seconds: float, seed: int) -> list[Run]:
    """Return the runs without and with hooks, half the time each."""
    plans = (
        Plan("Without hooks", has_hooks=False, seconds=seconds / 2, seed=seed),
        Plan("With hooks", has_hooks=True, seconds=seconds / 2, seed=seed),
    )
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "half_plus_two"
        build = [sys.executable, str(CHECKOUT / "examples" / "half_plus_two" / "build.py"), str(model)]
        subprocess.run(build, check=True, capture_output=True)
        return [perform(plan, model, Path(name), FIRST_PORT + 20 * at) for at, plan in enumerate(plans)]


if __name__ == "__main__":
    sys.exit(main())
