"""The table of models, played with scripted events: how a load goes on, and how it ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.supervisor.models.model_world import (
    KILLED,
    LOAD_SECONDS,
    LONGEST_WAIT,
    SERVER,
    ModelWorld,
    Replies,
    codes,
    server_and_workers,
    server_of,
    workers_of,
)

from pierhead.control import WorkerGone, WorkerReady
from pierhead.errors import Code, ServingError, StartError
from pierhead.supervisor.events import FromWorker, LoadRequested
from pierhead.supervisor.memory_use import MemoryUse
from pierhead.supervisor.models.table import UNLOAD_SECONDS

FULL = MemoryUse(95, 100)
ROOMY = MemoryUse(10, 100)


# Loading.


def test_model_is_loaded_when_its_processes_are_ready(world: ModelWorld) -> None:
    replies = world.load("a")
    assert world.table.loaded() == {}
    world.hear()
    assert world.spawner.started == [SERVER]
    assert replies == []
    world.play(world.answer(SERVER))

    assert replies == [None]
    assert world.table.loaded() == {"a": "/opt/ml/models/a/model"}
    assert world.loaded == ["a"]
    assert world.direct == ["a"]
    assert world.publication.number("a") == 1
    assert world.table.ends == {"loaded": 1}


def test_of_twenty_loads_of_one_name_one_wins_while_it_still_prepares(world: ModelWorld) -> None:
    world.hold("a")
    replies: list[Replies] = [[] for _ in range(20)]

    world.play(*(LoadRequested("a", "/opt/ml/models/a", each.append) for each in replies))

    assert [codes(each) for each in replies] == [[], *19 * [[Code.ALREADY_EXISTS]]]
    world.release("a")
    world.play(world.answer(SERVER))
    assert replies[0] == [None]
    assert len(world.preparer.handed_out) == 1


@pytest.mark.parametrize("phase", ["starting", "loaded"])
def test_second_load_is_refused_at_once_in_each_phase(world: ModelWorld, phase: str) -> None:
    world.load("a")
    world.hear()
    world.play(*[world.answer(SERVER)] * (phase == "loaded"))

    assert codes(world.load("a")) == [Code.ALREADY_EXISTS]


def test_loads_of_different_names_prepare_side_by_side(world: ModelWorld) -> None:
    world.hold("a", "b", "c")

    replies = [world.load(name) for name in "abc"]
    assert {"a", "b", "c"} == {world.preparer.entered.get(timeout=LONGEST_WAIT) for _ in "abc"}

    world.release("c", "a")
    world.play(world.answer(server_of("c")))
    assert [codes(each) for each in replies] == [[], [], [None]]
    world.release("b")
    world.play(world.answer(server_of("b")), world.answer(SERVER))
    assert [codes(each) for each in replies] == [[None], [None], [None]]
    assert list(world.table.loaded()) == ["a", "b", "c"]


def test_load_that_hangs_keeps_no_other_from_being_loaded_and_unloaded(world: ModelWorld) -> None:
    world.hold("a")
    world.load("a")
    world.load_fully("b")

    gone = world.unload("b")
    world.play(world.end(server_of("b")))
    world.hear()

    assert gone == [None]


def test_failed_preparation_is_answered_when_nothing_is_left_and_may_be_retried(world: ModelWorld) -> None:
    world.preparer.failures["a"] = ServingError(Code.NOT_FOUND, "no model")

    replies = world.load("a")
    world.hear(2)

    assert codes(replies) == [Code.NOT_FOUND]
    assert world.preparer.removed == [1]
    world.load_fully("a")
    assert world.publication.number("a") == 2
    assert world.table.ends == {"failed": 1, "loaded": 1}


@pytest.mark.parametrize("problem", [ValueError("a fault"), StartError("no room")])
def test_preparation_that_raises_anything_else_is_internal_and_loses_the_model_alone(
    world: ModelWorld, problem: Exception
) -> None:
    world.preparer.failures["a"] = problem

    replies = world.load("a")
    world.hear(2)

    assert codes(replies) == [Code.INTERNAL]
    world.load_fully("a")


def test_failure_is_answered_only_when_processes_and_files_are_gone(world: ModelWorld) -> None:
    world.preparer.shapes["a"] = server_and_workers
    replies = world.load("a")
    world.hear()
    world.play(world.answer(SERVER), world.end(workers_of("a"), status=1))

    assert (SERVER, signal.SIGKILL) in world.spawner.signals
    assert replies == []
    world.play(world.end(SERVER, status=KILLED))
    assert replies == []
    world.hear()

    assert codes(replies) == [Code.INTERNAL]
    assert {world.spawner.pids[SERVER], world.spawner.pids[workers_of("a")]} == set(world.spawner.awaited)
    assert world.preparer.handed_out == world.preparer.given_back
    assert not (world.run.models / "1").exists()
    assert {SERVER, workers_of("a")} == set(world.outputs.forgotten)


def test_retry_after_a_failure_begins_afresh(world: ModelWorld) -> None:
    world.load("a")
    world.hear()
    world.play(world.end(SERVER, status=1))
    world.hear()

    world.load_fully("a")

    assert world.loaded == ["a"]
    assert world.publication.number("a") == 2


def test_model_whose_servers_take_no_invocations_is_never_direct(world: ModelWorld) -> None:
    world.preparer.at_sockets = lambda _: ()

    world.load_fully("a")

    assert world.loaded == ["a"]
    assert world.direct == []


def test_model_with_workers_is_loaded_when_they_are_ready(world: ModelWorld) -> None:
    world.preparer.shapes["a"] = server_and_workers
    replies = world.load("a")
    world.hear()

    world.play(world.answer(SERVER))
    assert world.spawner.started == [SERVER, workers_of("a")]
    world.play(FromWorker(WorkerReady(7)))
    assert replies == []
    world.play(FromWorker(WorkerReady(8, workers_of("a"))))

    assert replies == [None]


def test_worker_of_a_model_that_a_signal_ends_during_the_load_ends_it(world: ModelWorld) -> None:
    world.preparer.shapes["a"] = server_and_workers
    replies = world.load("a")
    world.hear()
    world.play(world.answer(SERVER), FromWorker(WorkerGone(9, signal.SIGKILL, workers_of("a"))))
    world.play(world.end(SERVER, workers_of("a"), status=KILLED))
    world.hear()

    assert codes(replies) == [Code.RESOURCE_EXHAUSTED]


# Deadlines.


@pytest.mark.parametrize(
    ("use", "code"),
    [
        (None, Code.DEADLINE_EXCEEDED),
        (ROOMY, Code.DEADLINE_EXCEEDED),
        (FULL, Code.RESOURCE_EXHAUSTED),
    ],
)
def test_preparation_that_takes_too_long_is_answered_at_once(
    world: ModelWorld, use: MemoryUse | None, code: Code
) -> None:
    world.memory = use
    world.hold("a")
    replies = world.load("a")

    world.play(LOAD_SECONDS - 1)
    assert replies == []
    world.play(1.0)

    assert codes(replies) == [code]


def test_name_of_a_preparation_that_took_too_long_is_free_when_it_ends(world: ModelWorld) -> None:
    world.hold("a")
    world.load("a")
    world.play(LOAD_SECONDS)
    later = world.load("a")

    assert later == []
    world.release("a")
    world.hear(2)
    world.play(world.answer(SERVER))

    assert later == [None]
    assert world.preparer.handed_out[:1] == world.preparer.given_back
    assert world.publication.number("a") == 2


def test_start_that_takes_too_long_is_answered_when_its_processes_are_gone(world: ModelWorld) -> None:
    replies = world.load("a")
    world.hear()

    world.play(LOAD_SECONDS)
    assert replies == []
    assert world.spawner.signals == [(SERVER, signal.SIGKILL)]
    world.play(world.end(SERVER, status=KILLED))
    world.hear()

    assert codes(replies) == [Code.DEADLINE_EXCEEDED]
    assert "60 s (SAGEMAKER_TFS_WAIT_TIME_SECONDS)" in str(replies[0])


def test_loop_wakes_for_the_deadline_of_a_load_and_for_none_of_a_loaded_model(tmp_path: Path) -> None:
    world = ModelWorld(tmp_path, ())
    world.hold("a")

    world.load("a")
    assert world.inbox.waits[-1] == LOAD_SECONDS
    world.release("a")
    world.play(world.answer(SERVER))
    assert world.inbox.waits[-1] is None


def test_end_of_a_load_that_hangs_does_not_keep_the_loop_busy(tmp_path: Path) -> None:
    world = ModelWorld(tmp_path, ())
    world.hold("a")
    world.load("a")
    world.play(LOAD_SECONDS, UNLOAD_SECONDS)

    assert world.inbox.waits[-1] is None
    world.close()


# Memory.


def test_load_that_leaves_too_much_in_use_is_undone(world: ModelWorld) -> None:
    replies = world.load("a")
    world.hear()
    world.memory = FULL
    world.play(world.answer(SERVER))

    assert replies == []
    assert world.loaded == []
    world.play(world.end(SERVER, status=KILLED))
    world.hear()
    assert codes(replies) == [Code.RESOURCE_EXHAUSTED]
    assert "PIERHEAD_MEMORY_WATERMARK_PERCENT=90" in str(replies[0])


def test_watermark_of_a_hundred_refuses_none(tmp_path: Path) -> None:
    world = ModelWorld(tmp_path, environ={"PIERHEAD_MEMORY_WATERMARK_PERCENT": "100"})
    world.memory = MemoryUse(101, 100)

    world.load_fully("a")

    assert world.loaded == ["a"]


def test_full_memory_does_not_drop_a_model_that_is_loaded(world: ModelWorld) -> None:
    world.load_fully("a")
    world.memory = FULL

    world.play(world.end(SERVER, status=1), world.answer(SERVER))

    assert world.loaded == ["a"]
    assert world.direct == ["a"]


# A run folder without room.


def test_model_that_cannot_be_published_is_not_loaded(world: ModelWorld) -> None:
    blocked(world.run.loaded)
    replies = world.load("a")
    world.hear()
    world.play(world.answer(SERVER), world.end(SERVER, status=KILLED))
    world.hear()

    assert codes(replies) == [Code.INTERNAL]
    assert world.stack.status == 0
    assert world.table.ends == {"failed": 1}


def test_model_whose_direct_way_cannot_be_opened_is_served_by_the_shared_workers(world: ModelWorld) -> None:
    blocked(world.run.direct)
    world.load_fully("a")
    assert world.loaded == ["a"]

    world.run.direct.mkdir()
    world.play(0.0)
    assert world.direct == ["a"]


def blocked(folder: Path) -> None:
    """Let no link be made in a folder."""
    folder.rmdir()
