"""The report of the multi-model comparison in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.load import LoadResult
from benchmarks.multi_model.density import Density, density_text, milliseconds
from benchmarks.multi_model.direct import CLIENTS as PAIR_CLIENTS
from benchmarks.multi_model.direct import Pair
from benchmarks.multi_model.environments import MULTI_MODEL_SERVER, TRITON
from benchmarks.multi_model.neighbours import CLIENTS as NEIGHBOUR_CLIENTS
from benchmarks.multi_model.neighbours import QUIET, NeighbourRound
from benchmarks.multi_model.rounds import Figures, Invocations
from benchmarks.report import machine, spread, table

__all__ = ["Outcome", "render"]

PAGE = """\
# Performance of multi-model endpoints

<!-- Written by `make bench`. -->

Multi-model servers side by side on SageMaker's routes (`POST /models`, `POST /models/NAME/invoke`,
`DELETE /models/NAME`), in one run on one machine, taking turns. Clients are processes of their own, one
request in flight on each kept connection. Figures of two runs, or of two machines, say little about each
other.

{machine} {packages}

## Side by side

{side_by_side}

The model is half_plus_two with one worker or instance, three numbers a request. It is not the same program
everywhere: Pierhead runs the TensorFlow SavedModel; multi-model-server runs a Python function, and Triton,
whose PyPI build has the python backend alone, a Python class, both with numpy and without TensorFlow. Triton
reads another JSON of the same numbers. Memory is after a first answer of each model: the growth of all the
server's processes together, what they share counted once (PSS), and what a model's own processes have for
themselves (USS). Each figure of answers is the median of the rounds, with the least and the greatest in
brackets.

## One model or many

Pierhead with many models beside Pierhead with one, the same model and {pair_clients} clients.

{pairs}

## While another model is loaded

{neighbour_clients} clients on one model of Pierhead, while nothing else happens or another model loads for
about ten seconds: one whose warm-up request keeps TensorFlow busy on one core, one whose `inference.py`
sleeps while it is imported. Every request was answered with 200.

{neighbours}

## Many small models

Pierhead alone.

{density}"""
OTHERS = {"warm_up": "a model that warms up", "import": "a model with a slow inference.py"}


@dataclass(frozen=True)
class Outcome:
    """All that was measured, and why a server, by its title, took no part or not to the end."""

    figures: Mapping[str, Figures]
    dropped: Mapping[str, str]
    pairs: Sequence[Pair]
    neighbours: Mapping[str, Sequence[NeighbourRound]]
    density: Density


def render(outcome: Outcome) -> str:
    """Return the page."""
    packages = ", ".join(each.replace("==", " ") for each in (*MULTI_MODEL_SERVER.packages, *TRITON.packages))
    return PAGE.format(
        machine=machine(),
        packages=f"The others: {packages}.",
        side_by_side=_side_by_side(outcome),
        pair_clients=PAIR_CLIENTS,
        pairs=_pairs(outcome.pairs),
        neighbour_clients=NEIGHBOUR_CLIENTS,
        neighbours=_neighbours(outcome.neighbours),
        density=density_text(outcome.density),
    )


def _side_by_side(outcome: Outcome) -> str:
    shown = [title for title in outcome.figures if title not in outcome.dropped]
    lines: list[tuple[str, Callable[[Figures], str]]] = [
        ("load, ms: median / p95", lambda each: milliseconds(each.loads)),
        ("unload, ms: median / p95", lambda each: milliseconds(each.unloads)),
        ("unloads answered before the model's process was gone", _left_over),
        ("memory of one more model, MB (PSS)", lambda each: f"{each.each_model:.1f}"),
        ("private to a model's processes, MB (USS)", lambda each: f"{each.private:.1f}"),
        ("memory without models, MB (PSS)", lambda each: f"{each.without_models:.0f}"),
    ]
    plans = list(outcome.figures[shown[0]].answers) if shown else []
    rows = [[name, *(show(outcome.figures[title]) for title in shown)] for name, show in lines]
    for plan in plans:
        rows += _answer_rows(plan, [outcome.figures[title].answers[plan] for title in shown])
    notes = [f"{title} is left out: {reason}" for title, reason in outcome.dropped.items()]
    return "\n\n".join([table(["", *shown], rows), *notes])


def _left_over(figures: Figures) -> str:
    return f"{figures.left_over} of {len(figures.unloads)}"


def _answer_rows(plan: Invocations, columns: Sequence[Sequence[LoadResult]]) -> list[list[str]]:
    models = "1 model" if plan.models == 1 else f"{plan.models} models in turn"
    what = f"{models}, {plan.clients} client{'s' if plan.clients > 1 else ''}"
    return [
        [f"{what}: requests/s", *(spread(each.requests_per_second for each in column) for column in columns)],
        [f"{what}: p50 ms", *(spread((each.p50_ms for each in column), 2) for column in columns)],
        [f"{what}: p99 ms", *(spread((each.p99_ms for each in column), 2) for column in columns)],
    ]


def _pairs(pairs: Sequence[Pair]) -> str:
    rows = [
        _load_row("one model, /invocations", [pair.single for pair in pairs]),
        _load_row("many models, /models/NAME/invoke", [pair.multi for pair in pairs]),
    ]
    ratio = spread((pair.ratio for pair in pairs), 2)
    return (
        table(["what", *LOAD_HEADS], rows)
        + f"\n\nThe rate of many by the rate of one, round by round: {ratio}."
    )


LOAD_HEADS = ("requests/s", "p50 ms", "p99 ms")


def _load_row(name: str, loads: Sequence[LoadResult]) -> list[str]:
    return [
        name,
        spread(load.requests_per_second for load in loads),
        spread((load.p50_ms for load in loads), 2),
        spread((load.p99_ms for load in loads), 2),
    ]


def _neighbours(neighbours: Mapping[str, Sequence[NeighbourRound]]) -> str:
    rows = []
    for other, rounds in neighbours.items():
        name = "nothing" if other == QUIET else OTHERS[other]
        took = "" if other == QUIET else spread((each.load_seconds for each in rounds), 1)
        rows.append([*_load_row(name, [each.answers for each in rounds]), took])
    return table(["what is loaded", *LOAD_HEADS, "its load, s"], rows)
