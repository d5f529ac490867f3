"""`make bench`: all measurements, onto the screen and into docs/performance.md.

With `QUICK=1` there are fewer and shorter rounds, and the page stays as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.conversion import measure_conversions
from benchmarks.report import conversion_table, floor_table, load_table, page
from benchmarks.scenarios import measure, scenarios
from benchmarks.servers import CHECKOUT, constant_server, models_server

PAGE = CHECKOUT / "docs" / "performance.md"
MODELS = ("half_plus_two", "image", "table")


@dataclass(frozen=True)
class Extent:
    """How often and how long is measured."""

    rounds: int
    seconds: float


QUICK, FULL = Extent(2, 0.6), Extent(5, 1.5)


def main() -> None:
    """Measure, print, and write the page."""
    is_quick = os.environ.get("QUICK", "") not in {"", "0"}
    extent = QUICK if is_quick else FULL
    with tempfile.TemporaryDirectory() as name:
        text = measured_page(Path(name), extent)
    sys.stdout.write(text)
    if not is_quick:
        PAGE.write_text(text)


def measured_page(folder: Path, extent: Extent) -> str:
    """Return the page with all figures; models and bodies are written into the folder."""
    _run("benchmarks.models", str(folder))
    with models_server(folder, MODELS) as models, constant_server() as constant:
        each = scenarios(models, constant, folder)
        loads = load_table(each, measure(each, extent.rounds, extent.seconds))
    floors = _bare_calls(folder, extent.rounds)
    conversions = conversion_table(measure_conversions(extent.rounds))
    return page(extent.rounds, loads, floor_table(floors), conversions)


def _bare_calls(folder: Path, rounds: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = json.loads(_run("benchmarks.bare_model", str(folder), str(rounds)))
    return figures


def _run(module: str, *arguments: str) -> str:
    """Return what a script prints that imports TensorFlow, and so has a process of its own."""
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(
        command, cwd=CHECKOUT, env=environ, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return ended.stdout.decode()


if __name__ == "__main__":
    main()
