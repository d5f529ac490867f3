"""Requests whose right answers are known: half_plus_two in every content type and every accepted one.

The answers are worked out here, by nothing of Pierhead's, and compared exactly: multiples of one half are
exact in float32 and in every spelling.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Exchange", "large_exchange", "random_exchange"]

CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
JSON, JSON_LINES, CSV = "application/json", "application/jsonlines", "text/csv"
NPY, NPZ = "application/x-npy", "application/x-npz"
ACCEPTS = {
    JSON: JSON,
    "": JSON,
    "*/*": JSON,
    "application/json, text/csv": JSON,
    JSON_LINES: JSON_LINES,
    "application/jsonlines;q=0.9, */*;q=0.1": JSON_LINES,
    CSV: CSV,
    NPY: NPY,
}
LARGE = 150_000
Numbers = list[float]


@dataclass(frozen=True)
class Exchange:
    """A request, and the answer that it must get: type and numbers."""

    name: str
    body: bytes
    headers: Mapping[str, str]
    answer_type: str
    numbers: Numbers

    def problem_of(self, content_type: str, body: bytes) -> str:
        """Return what is wrong about an answer of status 200; empty where nothing is."""
        if content_type != self.answer_type:
            return f"Content-Type {content_type} and not {self.answer_type}"
        try:
            numbers = READERS[self.answer_type](body)
        except (ValueError, KeyError, TypeError) as problem:
            return f"unreadable: {problem!r}"
        return "" if numbers == self.numbers else f"wrong numbers: {str(numbers)[:200]}"


def random_exchange(random_: random.Random, *, may_stream: bool) -> Exchange:
    """Return a request of any type, of up to 200 numbers."""
    return _exchange(random_, random_.choice([1, 1, 3, 10, 200]), may_stream=may_stream)


def large_exchange(random_: random.Random, *, may_stream: bool) -> Exchange:
    """Return a request of a megabyte or so."""
    return _exchange(random_, LARGE, may_stream=may_stream)


def _exchange(random_: random.Random, size: int, *, may_stream: bool) -> Exchange:
    numbers = [random_.randrange(-2000, 2000) / 2 for _ in range(size)]
    name = random_.choice(list(WRITERS))
    accept = random_.choice(list(ACCEPTS))
    body = WRITERS[name](numbers)
    headers = {"Content-Type": name.partition(" ")[0]}
    if accept:
        headers["Accept"] = accept
    if random_.random() < 0.1:
        body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
    if random_.random() < 0.3:
        headers[CUSTOM_ATTRIBUTES] = "tfs-model-name=half_plus_two,tfs-model-version=1"
    if may_stream and random_.random() < 0.2:
        headers[CUSTOM_ATTRIBUTES] = "stream=yes"
    return Exchange(
        f"{name} -> {ACCEPTS[accept]}" + (", large" if size == LARGE else ""),
        body,
        headers,
        ACCEPTS[accept],
        [number / 2 + 2 for number in numbers],
    )


def _lines(numbers: Numbers) -> bytes:
    return "".join(f"{number}\n" for number in numbers).encode()


def _npy(numbers: Numbers) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(numbers, np.float32))
    return file.getvalue()


def _npz(numbers: Numbers) -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.array(numbers, np.float32))
    return file.getvalue()


def _read_json(body: bytes) -> Numbers:
    answer = json.loads(body)
    (numbers,) = answer.values()
    return list(numbers)


def _read_lines(body: bytes) -> Numbers:
    return [float(line) for line in body.splitlines()]


def _read_npy(body: bytes) -> Numbers:
    return [float(number) for number in np.load(io.BytesIO(body), allow_pickle=False)]


# A blank and a word in a name tell apart what has the same Content-Type.
WRITERS: Mapping[str, Callable[[Numbers], bytes]] = {
    "application/json rows": lambda numbers: json.dumps({"instances": numbers}).encode(),
    "application/json columns": lambda numbers: json.dumps({"inputs": numbers}).encode(),
    "application/json names": lambda numbers: json.dumps({"instances": [{"x": x} for x in numbers]}).encode(),
    JSON_LINES: _lines,
    "application/x-jsonlines": _lines,
    CSV: _lines,
    NPY: _npy,
    NPZ: _npz,
}
READERS: Mapping[str, Callable[[bytes], Numbers]] = {
    JSON: _read_json,
    JSON_LINES: _read_lines,
    CSV: _read_lines,
    NPY: _read_npy,
}
