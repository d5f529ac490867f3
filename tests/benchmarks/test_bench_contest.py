"""Servers that cannot take part, or fail half-way, leave the others alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from benchmarks.load import LoadResult
from benchmarks.multi_model import mms
from benchmarks.multi_model.contest import Contest
from benchmarks.multi_model.density import Density, Holdings
from benchmarks.multi_model.direct import Pair
from benchmarks.multi_model.endpoint import Endpoint, Refused
from benchmarks.multi_model.environments import Unavailable
from benchmarks.multi_model.neighbours import QUIET, NeighbourRound
from benchmarks.multi_model.page import Outcome, render
from benchmarks.multi_model.rounds import Figures, Invocations

RESULT = LoadResult(100, 1000.0, 1.0, 2.0, 50.0)


@contextmanager
def server(title: str, *, is_there: bool = True) -> Iterator[Endpoint]:
    if not is_there:
        raise Unavailable("there is no Java")
    yield Endpoint(title, 1, 1, Path("none"), str)


def test_a_server_that_cannot_be_had_drops_out_with_its_reason() -> None:
    with ExitStack() as stack:
        contest = Contest(stack)
        contest.enter("one", server("one"))
        contest.enter("two", server("two", is_there=False))

    assert ["one"] == list(contest.endpoints)
    assert {"two": "there is no Java"} == contest.dropped


def test_a_server_that_fails_is_not_asked_again() -> None:
    asked: list[str] = []

    def act(title: str, _: Endpoint) -> None:
        asked.append(title)
        if title == "one":
            raise Refused("one: POST /models: 500")

    with ExitStack() as stack:
        contest = Contest(stack)
        contest.enter("one", server("one"))
        contest.enter("two", server("two"))
        contest.each(act)
        contest.each(act)

    assert ["one", "two", "two"] == asked
    assert {"one": "Refused: one: POST /models: 500"} == contest.dropped


def test_without_java_multi_model_server_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(Unavailable, match="there is no Java"), mms.multi_model_server(tmp_path, 1):
        pass


def test_the_page_says_why_a_server_is_left_out() -> None:
    figures = Figures(loads=[0.2], unloads=[0.05], answers={Invocations(1, 8): [RESULT]})
    holdings = Holdings(7, 1, frozenset({"nginx.conf"}), {"nginx": 5.0})
    outcome = Outcome(
        figures={"Pierhead": figures},
        dropped={"Triton": "it has no backend for Python 3.99"},
        pairs=[Pair(RESULT, RESULT)],
        neighbours={QUIET: [NeighbourRound(RESULT, 0.0)]},
        density=Density([0.2], [0.05], 25.0, 24.0, 1, [0.3], holdings, holdings),
    )

    page = render(outcome)

    assert "|  | Pierhead |" in page
    assert "Triton is left out: it has no backend for Python 3.99" in page
    assert "| 1 model, 8 clients: requests/s | 1,000 (1,000-1,000) |" in page
