"""Models that come and go leave nothing behind: no process, port or file, and no memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.multi_model.density import density_text, measure_density
from benchmarks.multi_model.endpoint import names_of_models
from benchmarks.multi_model.ours import pierhead, run_folder


def test_unloaded_models_leave_nothing_behind(half_plus_two: Path, free_ports: Callable[[int], int]) -> None:
    artifacts, first = dict.fromkeys(names_of_models(6), half_plus_two), free_ports(20)

    # Sockets have short paths, shorter than a test's own folder.
    with tempfile.TemporaryDirectory(prefix="ph-") as name:
        folder = Path(name)
        with pierhead(folder, artifacts, f"{first}-{first + 19}") as server:
            density = measure_density(server, run_folder(folder), models=6, rounds=4, batch=3)

    assert [] == density.left_behind, density_text(density)
    assert 6 == len(density.loads)
    assert 4 == len(density.rounds)
