"""The cost of conversion alone: JSON to tensors and back, in processor time for each number."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pierhead.formats.payloads import parse_payload
from pierhead.formats.predict_json import Layout, parse_predict, render_predict
from pierhead.formats.tensors import Array, Signature, TensorSpec

__all__ = ["Conversion", "csv_body", "image_body", "measure_conversions"]

SIGNATURE = Signature("", "", {"x": TensorSpec("DT_FLOAT", None)}, {})
IMAGE_SHAPE = (1, 224, 224, 3)
SMALL_BODY = b'{"instances": [1.0, 2.0, 5.0]}'
ENOUGH_SECONDS = 0.02


@dataclass(frozen=True)
class Conversion:
    """One conversion: what it converts, how many numbers that are, and the seconds of each round."""

    name: str
    numbers: int
    seconds: tuple[float, ...]

    @property
    def nanoseconds(self) -> tuple[float, ...]:
        """The cost of one number in each round."""
        return tuple(each / self.numbers * 1e9 for each in self.seconds)


def image_array() -> Array:
    """Return an image of random numbers between 0 and 1."""
    return np.random.default_rng(0).random(IMAGE_SHAPE, dtype=np.float32)


def image_body() -> bytes:
    """Return the predict request of one image: 3 MB, every float32 with all digits of a double."""
    return json.dumps({"instances": image_array().tolist()}).encode()


def csv_body() -> bytes:
    """Return 1,000 rows of 4 numbers."""
    rows = np.random.default_rng(0).random((1000, 4))
    return "".join(",".join(f"{value:.3f}" for value in row) + "\n" for row in rows).encode()


def measure_conversions(rounds: int) -> list[Conversion]:
    """Measure all conversions, one after another in each round."""
    image, flat, few = image_body(), image_array().reshape(1, -1), np.array([2.5, 3.0, 4.5], np.float32)
    table = csv_body()
    work: dict[str, tuple[int, Callable[[], object]]] = {
        "JSON in, 3 numbers": (3, lambda: parse_predict(SMALL_BODY).tensors(SIGNATURE)),
        "JSON out, 3 numbers": (3, lambda: render_predict({"y": few}, Layout.ROW)),
        "JSON in, 150,528 numbers": (flat.size, lambda: parse_predict(image).tensors(SIGNATURE)),
        "JSON out, 150,528 numbers": (flat.size, lambda: render_predict({"y": flat}, Layout.ROW)),
        "CSV in, 4,000 numbers": (4000, lambda: parse_payload(table, "text/csv").tensors(SIGNATURE)),
    }
    # The first call of each pays for fresh memory.
    for _, convert in work.values():
        convert()
    seconds = [[_seconds_each(convert) for _, convert in work.values()] for _ in range(rounds)]
    columns = zip(*seconds, strict=True)
    return [Conversion(name, work[name][0], each) for name, each in zip(work, columns, strict=True)]


def _seconds_each(convert: Callable[[], object]) -> float:
    """Return the median processor time of a call."""
    times: list[float] = []
    while sum(times) < ENOUGH_SECONDS or len(times) < 3:
        start = time.process_time()
        convert()
        times.append(time.process_time() - start)
    return statistics.median(times)
