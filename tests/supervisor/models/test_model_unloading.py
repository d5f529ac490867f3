"""The table of models: unloading, serving, what comes too late, and the end of the stack."""

from __future__ import annotations

import signal

import pytest
from tests.supervisor.models.model_world import (
    KILLED,
    LOAD_SECONDS,
    SERVER,
    ModelWorld,
    codes,
    server_of,
    workers_of,
)
from tests.supervisor.test_stack import FORKED_PID, TERM

from pierhead.control import Forked, StartFailed, WorkerGone, WorkerReady
from pierhead.errors import Code
from pierhead.supervisor.events import FromWorker, ProbeAnswered
from pierhead.supervisor.models.table import UNLOAD_SECONDS
from pierhead.supervisor.plan import NGINX, WORKERS
from pierhead.supervisor.process import BACKOFF_SECONDS
from pierhead.supervisor.stack import STOP_SECONDS

# Unloading.


def test_unload_is_answered_when_nothing_is_left(world: ModelWorld) -> None:
    world.load_fully("a")

    replies = world.unload("a")
    assert world.loaded == []
    assert world.direct == []
    assert world.table.loaded() == {}
    assert world.spawner.signals == [(SERVER, signal.SIGTERM)]
    world.play(world.end(SERVER))
    assert replies == []
    world.hear()

    assert replies == [None]
    assert world.preparer.handed_out == world.preparer.given_back
    assert list(world.table.groups()) == []
    assert world.table.ends == {"loaded": 1, "unloaded": 1}


def test_unload_of_what_is_not_loaded_is_not_found(world: ModelWorld) -> None:
    assert codes(world.unload("a")) == [Code.NOT_FOUND]


def test_second_unload_is_not_found_after_the_end_of_the_first(world: ModelWorld) -> None:
    world.load_fully("a")

    first, second = world.unload("a"), world.unload("a")
    world.play(world.end(SERVER))
    assert (first, second) == ([], [])
    world.hear()

    assert codes(first) == [None]
    assert codes(second) == [Code.NOT_FOUND]


def test_workers_of_a_model_end_before_its_servers(hooked: ModelWorld) -> None:
    hooked.unload("a")

    assert hooked.spawner.signals == [(workers_of("a"), signal.SIGTERM)]
    hooked.play(hooked.end(workers_of("a")))
    assert hooked.spawner.signals[-1] == (SERVER, signal.SIGTERM)


def test_what_does_not_end_in_time_is_killed(hooked: ModelWorld) -> None:
    replies = hooked.unload("a")

    hooked.play(UNLOAD_SECONDS)
    assert {(SERVER, signal.SIGKILL), (workers_of("a"), signal.SIGKILL)} <= set(hooked.spawner.signals)
    hooked.play(hooked.end(SERVER, workers_of("a"), status=KILLED))
    hooked.hear()

    assert replies == [None]


@pytest.mark.parametrize("phase", ["preparing", "starting"])
def test_unload_during_the_load_aborts_it(world: ModelWorld, phase: str) -> None:
    world.hold("a")
    loader = world.load("a")
    if phase == "starting":
        world.release("a")
    unloader = world.unload("a")

    assert (loader, unloader) == ([], [])
    if phase == "starting":
        assert world.spawner.signals == [(SERVER, signal.SIGKILL)]
        world.play(world.end(SERVER, status=KILLED))
    else:
        world.release("a")
        assert world.spawner.started == []
    world.hear()

    assert codes(loader) == [Code.ABORTED]
    assert unloader == [None]
    assert world.preparer.handed_out == world.preparer.given_back
    assert world.table.ends == {"failed": 1}


def test_load_during_the_unload_begins_when_nothing_is_left(world: ModelWorld) -> None:
    world.load_fully("a")
    unloader, loader = world.unload("a"), world.load("a")

    world.play(world.end(SERVER))
    assert loader == []
    assert world.spawner.started == []
    world.hear()
    assert unloader == [None]
    world.hear()
    assert world.spawner.started == [SERVER]
    world.play(world.answer(SERVER))

    assert loader == [None]
    assert world.publication.number("a") == 2


def test_of_loads_during_the_unload_one_wins(world: ModelWorld) -> None:
    world.load_fully("a")
    world.unload("a")
    loaders = [world.load("a") for _ in range(3)]

    world.play(world.end(SERVER))
    world.hear(2)
    world.play(world.answer(SERVER))

    assert [codes(each) for each in loaders] == [[None], [Code.ALREADY_EXISTS], [Code.ALREADY_EXISTS]]


def test_limit_of_a_postponed_load_begins_with_it(world: ModelWorld) -> None:
    world.load_fully("a")
    world.unload("a")
    loader = world.load("a")
    world.play(20.0, world.end(SERVER))
    world.hear(2)

    world.play(LOAD_SECONDS - 1, world.answer(SERVER))

    assert loader == [None]


# Serving.


def test_dead_server_closes_the_direct_way_until_it_is_ready_again(world: ModelWorld) -> None:
    world.load_fully("a", "b")

    world.play(world.end(SERVER, status=-signal.SIGSEGV))
    assert world.direct == ["b"]
    assert world.loaded == ["a", "b"]
    assert world.spawner.started == [SERVER]
    world.play(world.answer(SERVER))

    assert world.direct == ["a", "b"]


def test_model_without_a_handler_worker_is_not_direct(hooked: ModelWorld) -> None:
    hooked.play(FromWorker(WorkerGone(7, 0, workers_of("a"))))
    assert hooked.direct == []
    hooked.play(FromWorker(WorkerReady(8, workers_of("a"))))
    assert hooked.direct == ["a"]


def test_server_behind_handler_workers_closes_no_way(hooked: ModelWorld) -> None:
    """They find another server by themselves, or say that there is none."""
    hooked.preparer.at_sockets = lambda specs: (specs[-1].name,)
    hooked.preparer.shapes["b"] = hooked.preparer.shapes["a"]
    hooked.load("b")
    hooked.hear()
    hooked.play(hooked.answer(server_of("b")), FromWorker(WorkerReady(9, workers_of("b"))))
    assert hooked.direct == ["a", "b"]

    hooked.play(hooked.end(server_of("b"), status=-signal.SIGSEGV))

    assert hooked.direct == ["a", "b"]


def test_models_make_no_part_of_the_stack_unready(world: ModelWorld) -> None:
    world.load_fully("a")
    world.load("b")

    world.play(world.end(SERVER, status=1))

    assert world.stack.not_ready() == ""


def test_model_that_is_given_up_is_dropped_and_may_be_loaded_again(world: ModelWorld) -> None:
    world.load_fully("a", "b")
    for seconds in BACKOFF_SECONDS:
        world.play(world.end(SERVER, status=1), seconds)
    assert list(world.table.loaded()) == ["a", "b"]

    world.play(world.end(SERVER, status=1))
    assert list(world.table.loaded()) == ["b"]
    assert world.loaded == ["b"]
    world.hear()

    assert world.table.ends == {"loaded": 2, "dropped": 1}
    assert world.stack.status == 0
    world.load_fully("a")
    assert list(world.table.loaded()) == ["a", "b"]


def test_unload_of_a_model_that_is_being_dropped_is_not_found(hooked: ModelWorld) -> None:
    for seconds in BACKOFF_SECONDS:
        hooked.play(hooked.end(SERVER, status=1), seconds)
    hooked.play(hooked.end(SERVER, status=1))

    replies = hooked.unload("a")
    hooked.play(hooked.end(workers_of("a"), status=KILLED))
    hooked.hear()

    assert codes(replies) == [Code.NOT_FOUND]


def test_servers_are_those_of_loaded_models(world: ModelWorld) -> None:
    world.load_fully("a")
    world.load("b")
    world.hear()

    assert [(server_of("a"), world.preparer.handed_out[0])] == [
        (process.name, address) for process, address in world.table.servers()
    ]


# What comes too late.


def test_late_reports_of_a_model_that_is_gone_do_no_harm(hooked: ModelWorld) -> None:
    pid = hooked.spawner.pids[SERVER]
    hooked.unload("a")
    hooked.play(hooked.end(workers_of("a")), hooked.end(SERVER))
    hooked.hear()

    hooked.play(
        ProbeAnswered(SERVER, pid),
        FromWorker(WorkerReady(7, workers_of("a"))),
        FromWorker(WorkerGone(7, 9, workers_of("a"))),
        FromWorker(StartFailed(SERVER, Code.INTERNAL, "late")),
    )

    assert hooked.table.loaded() == {}
    assert list(hooked.table.groups()) == []


def test_late_fork_of_a_model_that_is_gone_is_killed(nursed: ModelWorld) -> None:
    nursed.play(nursed.nursery_says(Forked("gone/model-server-1", FORKED_PID)))

    assert ("gone/model-server-1", signal.SIGKILL) in nursed.spawner.signals


def test_probe_of_an_earlier_load_does_not_make_the_later_one_ready(world: ModelWorld) -> None:
    world.load_fully("a")
    earlier = world.spawner.pids[SERVER]
    world.unload("a")
    world.play(world.end(SERVER))
    world.hear()
    replies = world.load("a")
    world.hear()

    world.play(ProbeAnswered(SERVER, earlier))

    assert replies == []


def test_ports_are_given_back_once(world: ModelWorld) -> None:
    for _ in range(3):
        world.load_fully("a")
        world.unload("a")
        world.play(world.end(SERVER))
        world.hear()

    assert world.preparer.handed_out == world.preparer.given_back
    assert world.preparer.removed == [1, 2, 3]


# Stopping.


def test_loads_are_unavailable_when_the_container_stops(world: ModelWorld) -> None:
    world.hold("a")
    preparing, starting = world.load("a"), world.load("b")
    world.hear()

    world.play(TERM)

    assert codes(preparing) == [Code.UNAVAILABLE]
    assert codes(starting) == [Code.UNAVAILABLE]
    assert codes(world.load("c")) == [Code.UNAVAILABLE]


def test_all_who_wait_for_an_unload_are_answered_when_the_container_stops(hooked: ModelWorld) -> None:
    waiting = [hooked.unload("a"), hooked.unload("a"), hooked.load("a")]

    hooked.play(TERM)

    assert [codes(each) for each in waiting] == 3 * [[Code.UNAVAILABLE]]


def test_unload_during_the_stop_is_unavailable(world: ModelWorld) -> None:
    world.load_fully("a")
    world.play(TERM)

    assert codes(world.unload("a")) == [Code.UNAVAILABLE]


def test_stop_ends_nginx_then_workers_then_servers_of_all_models(hooked: ModelWorld) -> None:
    hooked.load_fully("b")

    hooked.play(TERM)
    assert asked_to_end(hooked) == {NGINX}
    hooked.play(hooked.end(NGINX))
    assert asked_to_end(hooked) == {NGINX, WORKERS, workers_of("a")}
    hooked.play(hooked.end(WORKERS, workers_of("a")))
    assert asked_to_end(hooked) == {NGINX, WORKERS, workers_of("a"), SERVER, server_of("b")}

    assert hooked.play(hooked.end(SERVER, server_of("b"))) == 0


def asked_to_end(world: ModelWorld) -> set[str]:
    return {name for name, number in world.spawner.signals if number == signal.SIGTERM}


def test_all_models_are_killed_at_the_deadline_of_a_stop(world: ModelWorld) -> None:
    world.load_fully("a")

    world.play(TERM, STOP_SECONDS)

    assert (SERVER, signal.SIGKILL) in world.spawner.signals
    assert world.play(world.end(NGINX, WORKERS, SERVER, status=KILLED)) == 0


def test_preparation_that_ends_during_a_stop_starts_nothing(world: ModelWorld) -> None:
    world.hold("a")
    world.load("a")
    world.play(TERM)

    world.release("a")

    assert SERVER not in world.spawner.started
    assert world.play(world.end(NGINX), world.end(WORKERS)) == 0
