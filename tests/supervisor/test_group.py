"""Processes that live and end together, apart from any stack."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.supervisor.test_stack import FakeSpawner

from pierhead.control import WorkerGone, WorkerReady
from pierhead.supervisor.events import ProbeAnswered
from pierhead.supervisor.group import ProcessGroup, Surroundings, stop_highest_stage
from pierhead.supervisor.probes import Probe
from pierhead.supervisor.process import BACKOFF_SECONDS, Process, ProcessSpec
from pierhead.supervisor.states import State

SERVER, WORKERS = "a/server", "a/workers"
SPECS = (ProcessSpec(SERVER, ("/x",)), ProcessSpec(WORKERS, ("/x",), stage=1))
FORKED = (ProcessSpec(SERVER, ("/x",), forked=True),)


class Scene:
    """A group, its spawner, and a clock that a test sets."""

    def __init__(
        self, specs: Sequence[ProcessSpec] = SPECS, probes: Mapping[str, Probe] | None = None, **options: Any
    ) -> None:
        self.now = 0.0
        self.spawner = FakeSpawner()
        self.answers: list[ProbeAnswered] = []
        self.answered = threading.Event()
        self.group = ProcessGroup(
            specs,
            Surroundings(self.spawner, self._report, lambda: self.now),
            probes=probes or {},
            workers=WORKERS,
            worker_count=options.pop("worker_count", 1),
            **options,
        )

    def _report(self, answer: ProbeAnswered) -> None:
        self.answers.append(answer)
        self.answered.set()

    def advance(self, seconds: float = 0.0, *, may_start: bool = True) -> None:
        self.now += seconds
        self.group.advance(self.now, may_start=may_start)

    def make_ready(self) -> Scene:
        self.advance()
        self.group.note_ready(self[SERVER])
        self.advance()
        self.group.note_worker(WorkerReady(1), is_stopping=False)
        self.advance()
        assert self.group.was_ready
        return self

    def end(self, name: str, status: int) -> None:
        self.group.record_exit(self[name], status)
        self.advance()

    def __getitem__(self, name: str) -> Process:
        return self.group.processes[name]


def test_group_was_ready_once_all_its_processes_are() -> None:
    scene = Scene()
    scene.advance()
    before = scene.group.was_ready
    scene.make_ready()
    scene.end(SERVER, 1)

    assert [before, scene.group.was_ready] == [False, True]
    assert scene.group.waiting() == [f"{SERVER} is starting"]


def test_group_that_may_not_start_neither_starts_nor_becomes_ready() -> None:
    scene = Scene()
    scene.advance(may_start=False)

    assert scene.spawner.started == []
    assert not scene.group.was_ready


def test_empty_group_is_over_and_ready() -> None:
    scene = Scene(())
    scene.advance()

    assert scene.group.is_over
    assert scene.group.was_ready
    assert scene.group.deadlines() == []


def test_group_without_workers_ignores_reports_of_them() -> None:
    scene = Scene(SPECS[:1])
    scene.advance()
    scene.group.note_worker(WorkerReady(1), is_stopping=False)
    scene.group.note_worker(WorkerGone(1, signal.SIGKILL), is_stopping=False)

    assert scene.group.hopeless is None
    assert scene.group.worker_restarts == {}


def test_process_waits_for_one_of_another_group() -> None:
    outer = Scene()
    scene = Scene([ProcessSpec(SERVER, ("/x",), needs=(WORKERS,))], outer=outer.group.processes)
    scene.advance()
    assert scene.spawner.started == []
    outer.make_ready()
    scene.advance()

    assert scene.spawner.started == [SERVER]


def test_first_process_that_was_given_up_is_the_hopeless_one() -> None:
    scene = Scene()
    scene.advance()
    before = scene.group.hopeless
    scene.end(SERVER, 3)

    assert [before, scene.group.hopeless] == [None, scene[SERVER]]
    assert scene[SERVER].reason == "ended with status 3 before it was ready"


def test_process_of_a_group_that_was_ready_is_given_up_at_the_limit() -> None:
    scene = Scene().make_ready()
    for seconds in BACKOFF_SECONDS:
        scene.end(SERVER, 1)
        scene.advance(seconds)
    before = scene.group.hopeless
    scene.end(SERVER, 1)

    assert [before, scene.group.hopeless] == [None, scene[SERVER]]


@pytest.mark.parametrize("was_ready", [False, True])
def test_fork_that_fails_is_for_good_before_the_group_was_ready_alone(was_ready: bool) -> None:
    scene = Scene(FORKED)
    scene.advance()
    if was_ready:
        scene.group.note_forked(SERVER, 7)
        scene.group.note_ready(scene[SERVER])
        scene.advance()
        scene.end(SERVER, 1)
    scene.group.note_fork_failed(SERVER, errno.ENOMEM)

    assert scene[SERVER].state is (State.BACKOFF if was_ready else State.FATAL)
    assert scene[SERVER].error_number == errno.ENOMEM


def test_group_is_forking_until_the_pid_is_known() -> None:
    scene = Scene(FORKED)
    seen = [scene.group.is_forking]
    scene.advance()
    seen.append(scene.group.is_forking)
    scene.group.note_forked(SERVER, 7)
    seen.append(scene.group.is_forking)

    assert seen == [False, True, False]


def test_killed_group_waits_for_forks_that_are_under_way() -> None:
    scene = Scene(FORKED)
    scene.advance()
    scene.group.kill()
    assert scene.group.is_forking
    before = scene.group.is_over
    scene.group.note_forked(SERVER, 7)
    scene.end(SERVER, -signal.SIGKILL)

    assert [before, scene.group.is_over] == [False, True]
    assert ("pid 7", signal.SIGKILL) in scene.spawner.signals


def test_forgotten_fork_is_asked_for_again() -> None:
    scene = Scene(FORKED)
    scene.advance()
    scene.group.forget_forks()
    scene.advance()

    assert scene.spawner.started == [SERVER, SERVER]


def test_process_that_is_forked_is_not_forgotten() -> None:
    scene = Scene(FORKED)
    scene.advance()
    scene.group.note_forked(SERVER, 7)
    scene.group.forget_forks()

    assert scene[SERVER].pid == 7
    assert scene[SERVER].state is State.STARTING


def test_probe_is_asked_of_the_process_that_runs() -> None:
    scene = Scene(probes={SERVER: lambda: True})
    scene.advance()

    assert scene.answered.wait(10)
    assert scene.answers == [ProbeAnswered(SERVER, scene.spawner.pids[SERVER])]


def test_probe_is_asked_no_more_when_its_process_has_ended() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def probe() -> bool:
        asked.set()
        return go_on.wait(10)

    scene = Scene(probes={SERVER: probe})
    scene.advance()
    assert asked.wait(10)
    scene.end(SERVER, 1)
    scene.group.note_probe(SERVER, 100)
    go_on.set()

    assert scene[SERVER].state is State.FATAL


def test_ends_of_workers_are_counted_by_how() -> None:
    scene = Scene(worker_count=1).make_ready()
    for number in (0, signal.SIGKILL, signal.SIGSEGV):
        scene.group.note_worker(WorkerGone(1, number), is_stopping=False)
    scene.group.note_worker(WorkerGone(1, signal.SIGTERM), is_stopping=True)

    assert scene.group.worker_restarts == {"ended": 1, "killed": 1, "signal": 1}
    assert scene.group.waiting() == ["no handler worker is ready"]


def test_worker_lost_before_the_group_was_ready_leaves_its_signal_as_the_status() -> None:
    scene = Scene()
    scene.advance()
    scene.group.note_ready(scene[SERVER])
    scene.advance()
    scene.group.note_worker(WorkerGone(5, signal.SIGKILL), is_stopping=False)

    assert scene[WORKERS].state is State.FATAL
    assert scene[WORKERS].status == -signal.SIGKILL


def test_stages_stop_from_the_highest_and_all_are_killed_at_the_deadline() -> None:
    scene = Scene().make_ready()

    stop_highest_stage(scene.group.processes.values(), 0.0, 5.0)
    stop_highest_stage(scene.group.processes.values(), 1.0, 5.0)
    assert scene.spawner.signals == [(WORKERS, signal.SIGTERM)]
    scene.group.record_exit(scene[WORKERS], 0)
    stop_highest_stage(scene.group.processes.values(), 2.0, 5.0)
    assert scene.spawner.signals[-1] == (SERVER, signal.SIGTERM)
    stop_highest_stage(scene.group.processes.values(), 5.0, 5.0)
    assert scene.spawner.signals[-1] == (SERVER, signal.SIGKILL)


def test_stop_of_what_is_over_does_nothing() -> None:
    stop_highest_stage([], 0.0, 1.0)
