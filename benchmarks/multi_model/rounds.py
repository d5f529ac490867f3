"""What is measured of every server alike: loads, unloads, memory, and answers; the servers take turns."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import partial

from benchmarks.load import HttpLoad, LoadResult
from benchmarks.multi_model.contest import Contest
from benchmarks.multi_model.endpoint import Endpoint, names_of_models
from benchmarks.processes import megabytes, private_megabytes
from benchmarks.servers import CHECKOUT

__all__ = ["CLIENTS", "Figures", "Invocations", "load_command", "measure_rounds", "result_of"]

CLIENTS = (1, 8)


@dataclass(frozen=True)
class Invocations:
    """Requests from some clients to some of the loaded models, in turn."""

    models: int
    clients: int


@dataclass
class Figures:
    """What one server has shown; times in seconds, memory in megabytes.

    `each_model` is by how much the memory of all processes together has grown, and `private` what the model's
    own processes have for themselves; both for one model, and after a first answer.
    `left_over` counts the unloads at whose answer a process of the model was still there.
    """

    loads: list[float] = field(default_factory=list)
    unloads: list[float] = field(default_factory=list)
    left_over: int = 0
    processes: dict[str, set[int]] = field(default_factory=dict)
    without_models: float = 0.0
    each_model: float = 0.0
    private: float = 0.0
    answers: dict[Invocations, list[LoadResult]] = field(default_factory=lambda: defaultdict(list))


def measure_rounds(contest: Contest, models: int, rounds: int, seconds: float) -> dict[str, Figures]:
    """Return the figures of each server; all models are loaded, invoked and unloaded again.

    The first round of invocations does not count.
    """
    figures: dict[str, Figures] = defaultdict(Figures)
    names = names_of_models(models)
    contest.each(partial(_warm_up, figures, names[0]))
    for name in names:
        contest.each(partial(_load, figures, name))
    contest.each(partial(_note_memory, figures, models))
    plans = [Invocations(count, clients) for count in (1, models) for clients in CLIENTS]
    for number, plan in itertools.product(range(rounds + 1), plans):
        contest.each(partial(_invoke, figures, plan, seconds, number > 0))
    for name in names:
        contest.each(partial(_unload, figures, name))
    return figures


def load_command(load: HttpLoad) -> list[str]:
    """Return the command of a client, which prints its result."""
    return [sys.executable, "-m", "benchmarks.load", json.dumps(asdict(load))]


def result_of(load: HttpLoad) -> LoadResult:
    """Send a load from a process of its own."""
    ended = subprocess.run(load_command(load), cwd=CHECKOUT, check=True, capture_output=True)
    return LoadResult(**json.loads(ended.stdout))


def _warm_up(figures: dict[str, Figures], name: str, title: str, server: Endpoint) -> None:
    """Let a first model come and go, so that what a server makes once is counted as no model's."""
    server.load_model(name)
    server.check_model(name)
    server.unload_model(name)
    figures[title].without_models = megabytes(server.processes())


def _load(figures: dict[str, Figures], name: str, title: str, server: Endpoint) -> None:
    before = set(server.processes())
    figures[title].loads.append(server.load_model(name))
    figures[title].processes[name] = set(server.processes()) - before
    server.check_model(name)


def _note_memory(figures: dict[str, Figures], models: int, title: str, server: Endpoint) -> None:
    each = figures[title]
    each.each_model = (megabytes(server.processes()) - each.without_models) / models
    each.private = private_megabytes(pid for pids in each.processes.values() for pid in pids) / models


def _invoke(
    figures: dict[str, Figures], plan: Invocations, seconds: float, counts: bool, title: str, server: Endpoint
) -> None:
    result = result_of(
        server.http_load(names_of_models(plan.models), plan.clients, seconds if counts else seconds / 2)
    )
    if counts:
        figures[title].answers[plan].append(result)


def _unload(figures: dict[str, Figures], name: str, title: str, server: Endpoint) -> None:
    figures[title].unloads.append(server.unload_model(name))
    if figures[title].processes[name] & set(server.processes()):
        figures[title].left_over += 1
