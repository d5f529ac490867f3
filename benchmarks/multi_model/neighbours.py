"""What a loaded model's callers notice while another one is loaded; quiet and loading rounds take turns."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.load import HttpLoad, LoadResult
from benchmarks.multi_model.endpoint import Endpoint
from benchmarks.multi_model.rounds import load_command
from benchmarks.servers import CHECKOUT

__all__ = ["QUIET", "NeighbourRound", "measure_neighbours"]

CLIENTS = 4
QUIET = ""


@dataclass(frozen=True)
class NeighbourRound:
    """The answers of a round, and how long the other model's load took, 0 where there was none."""

    answers: LoadResult
    load_seconds: float


def measure_neighbours(
    server: Endpoint, name: str, slow: list[str], rounds: int, seconds: float
) -> dict[str, list[NeighbourRound]]:
    """Return rounds of requests for model `name`, by the model being loaded meanwhile or QUIET."""
    load = server.http_load([name], CLIENTS, seconds)
    each: dict[str, list[NeighbourRound]] = defaultdict(list)
    for other in [QUIET, *slow] * rounds:
        each[other].append(_quiet_round(load) if other == QUIET else _loading_round(server, load, other))
    return each


def _quiet_round(load: HttpLoad) -> NeighbourRound:
    with _client(load) as client:
        return NeighbourRound(_result(client), 0.0)


def _loading_round(server: Endpoint, load: HttpLoad, other: str) -> NeighbourRound:
    with ThreadPoolExecutor(1) as loader, _client(load) as client:
        loading = loader.submit(server.load_model, other)
        answers = _result(client)
        load_seconds = loading.result()
    server.check_model(other)
    server.unload_model(other)
    return NeighbourRound(answers, load_seconds)


@contextmanager
def _client(load: HttpLoad) -> Iterator[subprocess.Popen[bytes]]:
    """Run a client, which is killed where the block fails before it has ended."""
    with subprocess.Popen(load_command(load), cwd=CHECKOUT, stdout=subprocess.PIPE) as client:
        try:
            yield client
        finally:
            client.kill()


def _result(client: subprocess.Popen[bytes]) -> LoadResult:
    text = client.communicate()[0]
    if client.returncode != 0:
        raise RuntimeError("a request failed while another model was being loaded")
    return LoadResult(**json.loads(text))
