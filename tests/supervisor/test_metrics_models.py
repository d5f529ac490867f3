"""The metrics of a multi-model endpoint's table, and of the servers of its models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.supervisor.test_stack import FakeSpawner

from pierhead.control import ServerAddress
from pierhead.supervisor.metrics.models import ModelMetrics
from pierhead.supervisor.models.table import ModelTable
from pierhead.supervisor.process import Process, ProcessSpec


class PlayedTable(ModelTable):
    """Says what is loaded as a test has it."""

    def __init__(self) -> None:
        self.ends = Counter()
        self.urls: dict[str, str] = {}
        self.running: list[tuple[Process, ServerAddress]] = []

    def loaded(self) -> dict[str, str]:
        return dict(self.urls)

    def servers(self) -> Iterator[tuple[Process, ServerAddress]]:
        yield from self.running

    def run(self, name: str, port: int) -> None:
        spec = ProcessSpec(f"{name}/model-server-1", ("/x",))
        self.running.append((Process(spec, FakeSpawner()), ServerAddress(1, port)))


@pytest.fixture
def table() -> PlayedTable:
    return PlayedTable()


def lines(metrics: ModelMetrics) -> set[str]:
    metrics.refresh(0.0)
    return {line for line in metrics.page().encode().decode().splitlines() if not line.startswith("#")}


def test_endpoint_without_models_has_none_loaded(table: PlayedTable) -> None:
    assert lines(ModelMetrics(table)) == {"pierhead_models_loaded 0"}


def test_loaded_models_and_ends_are_counted(table: PlayedTable) -> None:
    table.urls = {"a": "/a", "b": "/b"}
    table.ends.update(loaded=3, unloaded=1, failed=2)

    assert lines(ModelMetrics(table)) == {
        "pierhead_models_loaded 2",
        'pierhead_model_loads_total{result="failed"} 2',
        'pierhead_model_loads_total{result="loaded"} 3',
        'pierhead_model_loads_total{result="unloaded"} 1',
    }


def test_page_is_that_of_the_last_look(table: PlayedTable) -> None:
    metrics = ModelMetrics(table)
    before = lines(metrics)
    table.urls = {"a": "/a"}

    assert before == {line for line in metrics.page().encode().decode().splitlines() if line[0] != "#"}


def test_server_of_a_loaded_model_is_one_part_as_long_as_it_is_loaded(table: PlayedTable) -> None:
    metrics = ModelMetrics(table)
    table.run("a", 8501)
    table.run("b", 8502)
    first = metrics.servers()

    assert [part.name for part in first] == ["a/model-server-1", "b/model-server-1"]
    assert list(map(id, metrics.servers())) == list(map(id, first))
    del table.running[0]
    assert [id(part) for part in metrics.servers()] == [id(first[1])]


def test_model_that_is_loaded_again_counts_from_nothing(table: PlayedTable) -> None:
    metrics = ModelMetrics(table)
    table.run("a", 8501)
    (first,) = metrics.servers()
    table.running.clear()
    table.run("a", 8501)
    (second,) = metrics.servers()

    assert first is not second
    assert first.name == second.name
