"""The floor of the model: its callable in a loop, with no server around it.

`python -m benchmarks.bare_model FOLDER ROUNDS` prints the processor time of one call of each model in
microseconds, once for each round.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pierhead.modelserver.runtimes.saved_model import SavedModelPlatform

SECONDS = 0.3
LEAST_CALLS = 5
SHAPES = {"half_plus_two": (3,), "image": (1, 224, 224, 3), "table": (1000, 4)}


def call_microseconds(folder: Path, shape: tuple[int, ...], rounds: int) -> list[float]:
    """Return the mean cost of calls in the calling thread, for each round."""
    runtime = SavedModelPlatform().load(folder)
    signature = runtime.signatures["serving_default"]
    inputs = {name: np.ones(shape, np.float32) for name in signature.inputs}
    outputs = tuple(signature.outputs)

    def run() -> None:
        runtime.run(signature.name, inputs, outputs, in_caller=True)

    run()
    return [_mean_seconds(run) * 1e6 for _ in range(rounds)]


def _mean_seconds(run: Callable[[], None]) -> float:
    calls, start = 0, time.process_time()
    while time.process_time() - start < SECONDS or calls < LEAST_CALLS:
        run()
        calls += 1
    return (time.process_time() - start) / calls


if __name__ == "__main__":
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    figures = {name: call_microseconds(folder / name / "1", shape, rounds) for name, shape in SHAPES.items()}
    sys.stdout.write(json.dumps(figures))
