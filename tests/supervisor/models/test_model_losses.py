"""The table of models: why a load fails, and what the nursery's end does to it."""

from __future__ import annotations

import errno
import signal

import pytest
from tests.supervisor.models.model_world import (
    KILLED,
    SERVER,
    ModelWorld,
    Replies,
    codes,
)

from pierhead.control import ForkFailed, NurseryReady, StartFailed
from pierhead.errors import Code
from pierhead.supervisor.events import FromWorker
from pierhead.supervisor.spawner import NURSERY

# Why a load fails.


def failed_start(world: ModelWorld, status: int) -> Replies:
    replies = world.load("a")
    world.hear()
    world.play(world.end(SERVER, status=status))
    world.hear()
    return replies


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (KILLED, Code.RESOURCE_EXHAUSTED),
        (1, Code.INTERNAL),
        (0, Code.INTERNAL),
        (-signal.SIGSEGV, Code.INTERNAL),
        (-signal.SIGABRT, Code.INTERNAL),
    ],
)
def test_sigkill_alone_is_a_want_of_memory(world: ModelWorld, status: int, code: Code) -> None:
    assert codes(failed_start(world, status)) == [code]


def test_last_line_that_tells_of_a_want_of_memory_counts(world: ModelWorld) -> None:
    world.outputs.lines[SERVER] = ("terminate called after throwing an instance of 'std::bad_alloc'",)

    assert codes(failed_start(world, -signal.SIGABRT)) == [Code.RESOURCE_EXHAUSTED]


def test_code_and_reason_that_a_process_gave_win(world: ModelWorld) -> None:
    replies = world.load("a")
    world.hear()
    world.play(FromWorker(StartFailed(SERVER, Code.INVALID_ARGUMENT, "the graph is odd")))
    world.play(FromWorker(StartFailed(SERVER, Code.INTERNAL, "a second word")))
    world.play(world.end(SERVER, status=KILLED))
    world.hear()

    assert codes(replies) == [Code.INVALID_ARGUMENT]
    assert "the graph is odd" in str(replies[0])


@pytest.mark.parametrize("error_number", [errno.ENOMEM, errno.EAGAIN])
def test_fork_for_which_there_is_no_room_is_resource_exhausted(nursed: ModelWorld, error_number: int) -> None:
    replies = nursed.load("a")
    nursed.hear()
    nursed.play(nursed.nursery_says(ForkFailed(SERVER, error_number)))
    nursed.hear()

    assert codes(replies) == [Code.RESOURCE_EXHAUSTED]
    assert nursed.preparer.handed_out == nursed.preparer.given_back


def test_program_that_cannot_be_run_is_internal(world: ModelWorld) -> None:
    world.spawner.missing_programs.add(SERVER)

    replies = world.load("a")
    world.hear(2)

    assert codes(replies) == [Code.INTERNAL]


# The nursery.


def test_server_is_forked_when_the_nursery_is_ready(nursed: ModelWorld) -> None:
    nursed.play(nursed.end(NURSERY, status=1))
    replies = nursed.load("a")
    nursed.hear()
    assert nursed.spawner.started == [NURSERY]

    nursed.play(nursed.nursery_says(NurseryReady()), nursed.forked("a"), nursed.answer(SERVER))

    assert replies == [None]


def test_death_of_the_nursery_before_the_fork_delays_the_load(nursed: ModelWorld) -> None:
    replies = nursed.load("a")
    nursed.hear()

    nursed.play(nursed.end(NURSERY, status=-signal.SIGSEGV))
    assert replies == []
    nursed.play(nursed.nursery_says(NurseryReady()), nursed.forked("a"), nursed.answer(SERVER))

    assert replies == [None]
    assert [SERVER, SERVER] == [name for name in nursed.spawner.started if name == SERVER]


def test_death_of_the_nursery_after_the_fork_does_no_harm(nursed: ModelWorld) -> None:
    replies = nursed.load("a")
    nursed.hear()

    nursed.play(nursed.forked("a"), nursed.end(NURSERY, status=1), nursed.answer(SERVER))

    assert replies == [None]


def test_fork_of_a_model_that_was_unloaded_meanwhile_is_killed(nursed: ModelWorld) -> None:
    loader = nursed.load("a")
    nursed.hear()
    unloader = nursed.unload("a")
    assert (loader, unloader) == ([], [])

    nursed.play(nursed.forked("a"))
    assert (SERVER, signal.SIGKILL) in nursed.spawner.signals
    nursed.play(nursed.end(SERVER, status=KILLED))
    nursed.hear()

    assert codes(loader) == [Code.ABORTED]
    assert unloader == [None]


def test_nursery_that_dies_ends_the_wait_for_a_fork_of_an_unloaded_model(nursed: ModelWorld) -> None:
    nursed.load("a")
    nursed.hear()
    unloader = nursed.unload("a")

    nursed.play(nursed.end(NURSERY, status=1))
    nursed.hear()

    assert unloader == [None]
