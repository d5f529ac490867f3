"""Many small models in one stack, and whether they leave anything behind when they go.

`python -m benchmarks.multi_model.density` loads 50 models, and then 20 times loads and unloads 10 of them at
once; it prints what it has seen, and its status is 1 where something was left. `MODELS`, `ROUNDS` and `BATCH`
make it another size.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.multi_model.endpoint import Endpoint, names_of_models
from benchmarks.multi_model.ours import pierhead, run_folder
from benchmarks.processes import anonymous_megabytes, listening_ports, megabytes, private_megabytes, program
from benchmarks.report import table
from benchmarks.servers import CHECKOUT

__all__ = [
    "Density",
    "Holdings",
    "build_half_plus_two",
    "density_text",
    "measure_density",
    "milliseconds",
]

MODELS, ROUNDS, BATCH = 50, 20, 10
# What an allocator may keep: of any program, and of a small one.
MOST_PERCENT, MOST_MEGABYTES = 110.0, 3.0


@dataclass(frozen=True)
class Holdings:
    """What the stack has while no model is loaded; the memory of each program, but for files, in MB."""

    processes: int
    ports: int
    files: frozenset[str]
    programs: dict[str, float]

    @property
    def megabytes(self) -> float:
        """The memory of all."""
        return sum(self.programs.values())


@dataclass(frozen=True)
class Density:
    """Times in seconds, memory in megabytes; in each of the rounds `batch` models have come and gone."""

    loads: list[float]
    unloads: list[float]
    each_model: float
    private: float
    batch: int
    rounds: list[float]
    before: Holdings
    after: Holdings

    @property
    def percent(self) -> float:
        """The memory afterwards, of that before."""
        return 100.0 * self.after.megabytes / self.before.megabytes

    @property
    def left_behind(self) -> list[str]:
        """What there is more of afterwards than before."""
        before, after = self.before, self.after
        left = sorted(after.files - before.files)
        left += [name for name in ("processes", "ports") if getattr(after, name) > getattr(before, name)]
        for name, grown in after.programs.items():
            had = before.programs.get(name, 0.0)
            if grown > max(had * MOST_PERCENT / 100, had + MOST_MEGABYTES):
                left.append(f"memory of {name}")
        return left


def measure_density(server: Endpoint, run: Path, models: int, rounds: int, batch: int) -> Density:
    """Load `models`, unload them, and then `batch` of them in each round; `run` is the stack's folder."""
    names = names_of_models(models)
    _come_and_go(server, names[:1])
    before, empty = _holdings(server, run), megabytes(server.processes())
    own = set(server.processes())
    loads = [_load(server, name) for name in names]
    loaded = server.processes()
    each_model, private = (megabytes(loaded) - empty) / models, private_megabytes(set(loaded) - own) / models
    unloads = [server.unload_model(name) for name in names]
    turns = [_come_and_go(server, names[:batch]) for _ in range(rounds)]
    return Density(loads, unloads, each_model, private, batch, turns, before, _holdings(server, run))


def _load(server: Endpoint, name: str) -> float:
    seconds = server.load_model(name)
    server.check_model(name)
    return seconds


def _come_and_go(server: Endpoint, names: list[str]) -> float:
    """Load models at the same time, unload them so too, and return the seconds that it took."""
    start = time.perf_counter()
    with ThreadPoolExecutor(len(names)) as callers:
        for act in (server.load_model, server.check_model, server.unload_model):
            list(callers.map(act, names))
    return time.perf_counter() - start


def _holdings(server: Endpoint, run: Path) -> Holdings:
    processes = server.processes()
    programs: dict[str, float] = defaultdict(float)
    for pid in processes:
        programs[program(pid)] += anonymous_megabytes([pid])
    files = frozenset(str(file.relative_to(run)) for file in run.rglob("*"))
    return Holdings(len(processes), len(listening_ports(processes)), files, dict(programs))


def density_text(density: Density) -> str:
    """Return what was seen, in Markdown."""
    before, after, times = (
        density.before,
        density.after,
        len(density.loads) + density.batch * len(density.rounds),
    )
    left = ", ".join(density.left_behind) or "nothing"
    rows = [
        ["processes", str(before.processes), str(after.processes)],
        ["ports that listen", str(before.ports), str(after.ports)],
        ["entries of the run folder", str(len(before.files)), str(len(after.files))],
        *(
            [f"MB of {name}", f"{had:.1f}", f"{after.programs.get(name, 0.0):.1f}"]
            for name, had in sorted(before.programs.items())
        ),
        ["MB of all", f"{before.megabytes:.1f}", f"{after.megabytes:.1f} ({density.percent:.1f}%)"],
    ]
    return (
        f"{len(density.loads)} models, one after another: {milliseconds(density.loads)} ms to load one and "
        f"{milliseconds(density.unloads)} to unload it (median / p95); {density.each_model:.1f} MB of memory "
        f"for each (PSS), {density.private:.1f} MB private (USS). Then {density.batch} models at once, "
        f"{len(density.rounds)} times: {milliseconds(density.rounds)} ms to load, invoke and unload all of "
        f"them. Left behind: {left}. Memory in the table is what is no file's.\n\n"
        + table(["while no model is loaded", "before", f"after {times} loads and unloads"], rows)
        + "\n"
    )


def milliseconds(seconds: Sequence[float]) -> str:
    """Return the median and the 95th percentile."""
    median, late = np.percentile(seconds, [50, 95]) * 1e3
    return f"{median:,.0f} / {late:,.0f}"


def build_half_plus_two(folder: Path) -> Path:
    """Build the example's artifact in a new folder."""
    script = CHECKOUT / "examples" / "half_plus_two" / "build.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True)
    return folder


def main() -> int:
    """Measure and print."""
    models, rounds, batch = (
        int(os.environ.get(name) or default)
        for name, default in (("MODELS", MODELS), ("ROUNDS", ROUNDS), ("BATCH", BATCH))
    )
    with tempfile.TemporaryDirectory(prefix="ph-") as name:
        folder = Path(name)
        artifact = build_half_plus_two(folder / "half_plus_two")
        with pierhead(folder, dict.fromkeys(names_of_models(models), artifact)) as server:
            density = measure_density(server, run_folder(folder), models, rounds, batch)
    sys.stdout.write(density_text(density))
    return 1 if density.left_behind else 0


if __name__ == "__main__":
    sys.exit(main())
