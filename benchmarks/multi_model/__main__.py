"""The multi-model part of `make bench`, onto the screen and into docs/multi_model_performance.md.

With `QUICK=1` there are fewer models and shorter rounds, and the page stays as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.multi_model import density, mms, triton
from benchmarks.multi_model.contest import Contest
from benchmarks.multi_model.density import build_half_plus_two, measure_density
from benchmarks.multi_model.direct import measure_pairs
from benchmarks.multi_model.endpoint import Endpoint, names_of_models
from benchmarks.multi_model.neighbours import measure_neighbours
from benchmarks.multi_model.ours import pierhead, pierhead_with_one_model, run_folder
from benchmarks.multi_model.page import Outcome, render
from benchmarks.multi_model.rounds import Figures, measure_rounds
from benchmarks.servers import CHECKOUT

PAGE = CHECKOUT / "docs" / "multi_model_performance.md"
SLOW = ("warm_up", "import")


@dataclass(frozen=True)
class Extent:
    """How much is measured, and for how many seconds at a time."""

    models: int
    rounds: int
    seconds: float
    neighbour_rounds: int
    neighbour_seconds: float
    dense_models: int
    dense_rounds: int
    batch: int


QUICK = Extent(4, 2, 0.6, 1, 9.0, 6, 2, 3)
FULL = Extent(20, 3, 1.0, 2, 9.0, density.MODELS, density.ROUNDS, density.BATCH)


def main() -> None:
    """Measure, print, and write the page."""
    is_quick = os.environ.get("QUICK", "") not in {"", "0"}
    # Sockets below it must have short paths.
    with tempfile.TemporaryDirectory(prefix="ph-") as name:
        text = render(measure(Path(name), QUICK if is_quick else FULL))
    sys.stdout.write(text)
    if not is_quick:
        PAGE.write_text(text)


def measure(folder: Path, extent: Extent) -> Outcome:
    """Return all figures; models and servers have their files below the folder."""
    half = build_half_plus_two(folder / "half_plus_two")
    names = names_of_models(max(extent.models, extent.dense_models))
    _build_slow_models(folder / "slow")
    artifacts = {**dict.fromkeys(names, half), **{name: folder / "slow" / name for name in SLOW}}
    with pierhead(_new(folder / "many"), artifacts) as own:
        figures, dropped = _side_by_side(folder, own, extent)
        name = names[0]
        own.load_model(name)
        with pierhead_with_one_model(_new(folder / "one"), half) as single:
            pairs = measure_pairs(own, single, name, extent.rounds, extent.seconds)
        neighbours = measure_neighbours(
            own, name, list(SLOW), extent.neighbour_rounds, extent.neighbour_seconds
        )
        own.unload_model(name)
        run = run_folder(folder / "many")
        dense = measure_density(own, run, extent.dense_models, extent.dense_rounds, extent.batch)
    return Outcome(figures, dropped, pairs, neighbours, dense)


def _side_by_side(folder: Path, own: Endpoint, extent: Extent) -> tuple[dict[str, Figures], dict[str, str]]:
    """Return the figures of all servers, and why some have none."""
    with ExitStack() as stack:
        contest = Contest(stack, {own.title: own})
        contest.enter(mms.TITLE, mms.multi_model_server(_new(folder / "mms"), extent.models))
        contest.enter(triton.TITLE, triton.triton(_new(folder / "triton"), extent.models))
        figures = measure_rounds(contest, extent.models, extent.rounds, extent.seconds)
    if own.title in contest.dropped:
        raise RuntimeError(contest.dropped[own.title])
    return figures, contest.dropped


def _build_slow_models(folder: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.multi_model.slow_models", str(folder)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
