"""One process as a state machine, with a fake operating system and times as plain numbers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest

from pierhead.supervisor.process import (
    BACKOFF_SECONDS,
    STEADY_SECONDS,
    Process,
    ProcessSpec,
    describe_status,
)
from pierhead.supervisor.states import LEGAL_MOVES, State

SPEC = ProcessSpec("server", ("/bin/server",), start_seconds=60.0)
ONCE = ProcessSpec("pip", ("/bin/pip",), once=True)
FORKED = ProcessSpec("server", (), forked=True, start_seconds=60.0)
FIRST_PID = 100
STOP_BY = 25.0


class FakeSystem:
    """Records what it is asked to do; pids count up from 100, forked processes have none yet."""

    def __init__(self) -> None:
        self.spawned: list[ProcessSpec] = []
        self.signals: list[tuple[str, int, int]] = []

    def spawn(self, spec: ProcessSpec) -> int | None:
        self.spawned.append(spec)
        return None if spec.forked else FIRST_PID + len(self.spawned) - 1

    def kill_group(self, pid: int, number: int) -> None:
        self.signals.append(("group", pid, number))

    def kill(self, pid: int, number: int) -> None:
        self.signals.append(("process", pid, number))


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem()


def started(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = Process(spec, system)
    process.start(0.0)
    return process


def ready(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = started(spec, system)
    process.become_ready(0.0)
    return process


def backing_off(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = ready(spec, system)
    process.record_exit(1, 0.0, may_restart=True)
    return process


def stopping(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = ready(spec, system)
    process.stop(0.0, STOP_BY)
    return process


def killing(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = ready(spec, system)
    process.kill(0.0)
    return process


def finished(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = started(ONCE, system)
    process.record_exit(0, 0.0, may_restart=False)
    return process


def given_up(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = started(spec, system)
    process.give_up("cannot be run", 0.0)
    return process


def stopped(spec: ProcessSpec, system: FakeSystem) -> Process:
    process = Process(spec, system)
    process.stop(0.0, STOP_BY)
    return process


IN_STATE: Mapping[State, Callable[[ProcessSpec, FakeSystem], Process]] = MappingProxyType(
    {
        State.WAITING: Process,
        State.STARTING: started,
        State.READY: ready,
        State.BACKOFF: backing_off,
        State.STOPPING: stopping,
        State.KILLING: killing,
        State.DONE: finished,
        State.FATAL: given_up,
        State.STOPPED: stopped,
    }
)


def exit_after_the_last_restart(process: Process) -> None:
    """Fail as often as is allowed, then once more from READY."""
    for _ in BACKOFF_SECONDS:
        process.record_exit(1, 0.0, may_restart=True)
        process.start(0.0)
        process.become_ready(0.0)
    process.record_exit(1, 0.0, may_restart=True)


MOVES: tuple[tuple[State, State, Callable[[Process], object]], ...] = (
    (State.WAITING, State.STARTING, lambda p: p.start(0.0)),
    (State.WAITING, State.STOPPED, lambda p: p.stop(0.0, STOP_BY)),
    (State.WAITING, State.STOPPED, lambda p: p.kill(0.0)),
    (State.STARTING, State.READY, lambda p: p.become_ready(1.0)),
    (State.STARTING, State.BACKOFF, lambda p: p.record_exit(1, 1.0, may_restart=True)),
    (State.STARTING, State.FATAL, lambda p: p.record_exit(1, 1.0, may_restart=False)),
    (State.STARTING, State.STOPPING, lambda p: p.stop(1.0, STOP_BY)),
    (State.STARTING, State.KILLING, lambda p: p.kill(1.0)),
    (State.READY, State.BACKOFF, lambda p: p.record_exit(1, 1.0, may_restart=True)),
    (State.READY, State.FATAL, exit_after_the_last_restart),
    (State.READY, State.STOPPING, lambda p: p.stop(1.0, STOP_BY)),
    (State.READY, State.KILLING, lambda p: p.kill(1.0)),
    (State.BACKOFF, State.STARTING, lambda p: p.start(1.0)),
    (State.BACKOFF, State.STOPPED, lambda p: p.stop(1.0, STOP_BY)),
    (State.BACKOFF, State.STOPPED, lambda p: p.kill(1.0)),
    (State.STOPPING, State.STOPPED, lambda p: p.record_exit(0, 1.0, may_restart=True)),
    (State.STOPPING, State.KILLING, lambda p: p.kill(1.0)),
    (State.KILLING, State.STOPPED, lambda p: p.record_exit(-9, 1.0, may_restart=True)),
)


@pytest.mark.parametrize(("before", "after", "act"), MOVES)
def test_legal_move_is_made(
    before: State, after: State, act: Callable[[Process], object], system: FakeSystem
) -> None:
    process = IN_STATE[before](SPEC, system)

    act(process)

    assert after is process.state


def test_process_that_runs_once_moves_from_starting_to_done(system: FakeSystem) -> None:
    assert finished(ONCE, system).state is State.DONE


def test_every_move_of_the_table_is_covered_here() -> None:
    covered = {(before, after) for before, after, _ in MOVES} | {(State.STARTING, State.DONE)}

    legal = {(before, after) for before, moves in LEGAL_MOVES.items() for after in moves}
    assert legal <= covered


@pytest.mark.parametrize("state", [each for each in State if State.STARTING not in LEGAL_MOVES[each]])
def test_start_from_a_state_without_that_move_raises(state: State, system: FakeSystem) -> None:
    process = IN_STATE[state](SPEC, system)

    with pytest.raises(AssertionError, match="not a legal move"):
        process.start(0.0)


@pytest.mark.parametrize("state", [State.DONE, State.FATAL, State.STOPPED])
def test_stop_and_kill_of_a_process_that_is_over_do_nothing(state: State, system: FakeSystem) -> None:
    process = IN_STATE[state](SPEC, system)
    system.signals.clear()

    process.stop(1.0, STOP_BY)
    process.kill(1.0)

    assert state is process.state
    assert system.signals == []


@pytest.mark.parametrize("state", list(State))
def test_settled_is_ready_or_done(state: State, system: FakeSystem) -> None:
    process = IN_STATE[state](SPEC, system)

    assert process.is_settled == (state in {State.READY, State.DONE})


@pytest.mark.parametrize("state", [each for each in State if each is not State.FATAL])
def test_over_is_stopped_or_done(state: State, system: FakeSystem) -> None:
    process = IN_STATE[state](SPEC, system)

    assert process.is_over == (state in {State.STOPPED, State.DONE})


def test_start_spawns_the_spec_and_keeps_the_pid(system: FakeSystem) -> None:
    process = started(SPEC, system)

    assert system.spawned == [SPEC]
    assert process.pid == FIRST_PID


def test_readiness_is_news_once(system: FakeSystem) -> None:
    process = started(SPEC, system)

    assert process.become_ready(1.0)
    assert not process.become_ready(2.0)


@pytest.mark.parametrize("state", [State.WAITING, State.BACKOFF, State.STOPPING, State.KILLING, State.FATAL])
def test_readiness_of_a_process_that_is_not_starting_is_ignored(state: State, system: FakeSystem) -> None:
    process = IN_STATE[state](SPEC, system)

    assert not process.become_ready(1.0)
    assert state is process.state


def test_backoff_grows_with_each_failure(system: FakeSystem) -> None:
    process = started(SPEC, system)
    now, delays = 0.0, []
    for _ in BACKOFF_SECONDS:
        process.record_exit(1, now, may_restart=True)
        assert process.deadline is not None
        delays.append(process.deadline - now)
        now = process.deadline
        process.start(now)

    assert list(BACKOFF_SECONDS) == delays
    assert delays == sorted(delays)


def test_failures_above_the_limit_are_fatal(system: FakeSystem) -> None:
    process = started(SPEC, system)
    for _ in BACKOFF_SECONDS:
        process.record_exit(7, 0.0, may_restart=True)
        process.start(0.0)

    process.record_exit(7, 0.0, may_restart=True)

    assert process.state is State.FATAL
    assert process.reason == "ended with status 7"


def test_steady_time_resets_the_count_of_failures(system: FakeSystem) -> None:
    process = started(SPEC, system)
    for _ in BACKOFF_SECONDS:
        process.record_exit(1, 0.0, may_restart=True)
        process.start(0.0)
    process.become_ready(0.0)

    process.record_exit(1, STEADY_SECONDS, may_restart=True)

    assert process.state is State.BACKOFF
    assert process.deadline == STEADY_SECONDS + BACKOFF_SECONDS[0]


def test_time_below_the_steady_time_resets_nothing(system: FakeSystem) -> None:
    process = started(SPEC, system)
    for _ in BACKOFF_SECONDS:
        process.record_exit(1, 0.0, may_restart=True)
        process.start(0.0)
    process.become_ready(0.0)

    process.record_exit(1, STEADY_SECONDS - 0.1, may_restart=True)

    assert process.state is State.FATAL


def test_long_start_is_not_a_steady_time(system: FakeSystem) -> None:
    process = started(SPEC, system)
    process.record_exit(1, 0.0, may_restart=True)
    process.start(0.0)

    process.record_exit(1, STEADY_SECONDS, may_restart=True)

    assert process.deadline == STEADY_SECONDS + BACKOFF_SECONDS[1]


def test_process_in_backoff_may_start_from_its_deadline_on(system: FakeSystem) -> None:
    process = backing_off(SPEC, system)
    process.start(0.0)
    process.record_exit(1, 0.0, may_restart=True)

    assert not process.may_start(0.9)
    assert process.may_start(1.0)


@pytest.mark.parametrize("state", [each for each in State if each not in (State.WAITING, State.BACKOFF)])
def test_only_waiting_and_backoff_may_start(state: State, system: FakeSystem) -> None:
    assert not IN_STATE[state](SPEC, system).may_start(1000.0)


def test_start_deadline_is_fatal_names_the_limit_and_kills_the_group(system: FakeSystem) -> None:
    process = started(SPEC, system)

    process.advance(59.9)
    assert system.signals == []
    process.advance(60.0)

    assert process.state is State.FATAL
    assert process.reason == "was not ready within 60 s (SAGEMAKER_TFS_WAIT_TIME_SECONDS)"
    assert ("group", FIRST_PID, signal.SIGKILL) in system.signals


@pytest.mark.parametrize("may_restart", [True, False])
def test_exit_of_a_process_that_was_given_up_changes_nothing(may_restart: bool, system: FakeSystem) -> None:
    process = given_up(SPEC, system)

    process.record_exit(-signal.SIGKILL, 1.0, may_restart=may_restart)

    assert process.state is State.FATAL
    assert process.reason == "cannot be run"
    assert process.pid is None


def test_process_that_was_given_up_is_over_when_it_has_ended(system: FakeSystem) -> None:
    process = given_up(SPEC, system)

    was_over = process.is_over
    process.record_exit(-signal.SIGKILL, 1.0, may_restart=False)

    assert (was_over, process.is_over) == (False, True)


def test_ready_process_has_no_deadline(system: FakeSystem) -> None:
    process = ready(SPEC, system)

    process.advance(1e9)

    assert process.state is State.READY
    assert process.deadline is None


def test_exit_before_readiness_without_restart_is_fatal(system: FakeSystem) -> None:
    process = started(SPEC, system)

    process.record_exit(3, 1.0, may_restart=False)

    assert process.state is State.FATAL
    assert process.reason == "ended with status 3 before it was ready"


def test_stop_sends_the_stop_signal_to_the_leader_alone(system: FakeSystem) -> None:
    spec = ProcessSpec("nginx", ("/bin/nginx",), stop_signal=signal.SIGQUIT)
    process = ready(spec, system)

    process.stop(0.0, STOP_BY)

    assert system.signals == [("process", FIRST_PID, signal.SIGQUIT)]
    assert process.deadline == STOP_BY


def test_second_stop_sends_nothing(system: FakeSystem) -> None:
    process = stopping(SPEC, system)
    system.signals.clear()

    process.stop(1.0, STOP_BY)

    assert system.signals == []


def test_process_that_does_not_stop_in_time_is_killed_with_its_group(system: FakeSystem) -> None:
    process = stopping(SPEC, system)
    system.signals.clear()

    process.advance(STOP_BY - 0.1)
    assert system.signals == []
    process.advance(STOP_BY)

    assert process.state is State.KILLING
    assert system.signals == [("group", FIRST_PID, signal.SIGKILL)]


def test_leftovers_of_a_dead_leader_are_killed(system: FakeSystem) -> None:
    process = ready(SPEC, system)

    process.record_exit(-signal.SIGKILL, 1.0, may_restart=True)

    assert system.signals == [("group", FIRST_PID, signal.SIGKILL)]
    assert process.pid is None


def test_once_process_that_succeeds_is_done_and_has_no_deadline(system: FakeSystem) -> None:
    process = finished(ONCE, system)

    assert process.is_settled
    assert process.deadline is None


@pytest.mark.parametrize("status", [1, -signal.SIGKILL])
def test_once_process_that_fails_is_fatal(status: int, system: FakeSystem) -> None:
    process = started(ONCE, system)

    process.record_exit(status, 1.0, may_restart=False)

    assert process.state is State.FATAL


def test_stopped_once_process_is_stopped_even_with_status_zero(system: FakeSystem) -> None:
    process = started(ONCE, system)
    process.stop(0.0, STOP_BY)

    process.record_exit(0, 1.0, may_restart=False)

    assert process.state is State.STOPPED


def test_forked_process_has_no_pid_until_it_is_reported(system: FakeSystem) -> None:
    process = started(FORKED, system)

    before = process.pid
    process.record_pid(7)

    assert (before, process.pid) == (None, 7)
    assert system.signals == []


def test_stop_before_the_pid_takes_effect_when_it_arrives(system: FakeSystem) -> None:
    process = started(FORKED, system)
    process.stop(0.0, STOP_BY)
    assert system.signals == []

    process.record_pid(7)

    assert system.signals == [("process", 7, signal.SIGTERM)]


def test_kill_before_the_pid_takes_effect_when_it_arrives(system: FakeSystem) -> None:
    process = started(FORKED, system)
    process.kill(0.0)
    assert system.signals == []

    process.record_pid(7)

    assert system.signals == [("group", 7, signal.SIGKILL)]


def test_pid_that_arrives_after_the_process_was_given_up_is_killed(system: FakeSystem) -> None:
    process = started(FORKED, system)
    process.advance(60.0)

    process.record_pid(7)

    assert system.signals == [("group", 7, signal.SIGKILL)]


def test_pid_that_arrives_after_the_process_was_forgotten_is_killed(system: FakeSystem) -> None:
    process = started(FORKED, system)
    process.stop(0.0, STOP_BY)
    process.forget(0.0)

    process.record_pid(7)

    assert system.signals == [("group", 7, signal.SIGKILL)]


def test_nursery_that_ends_first_makes_a_starting_process_back_off(system: FakeSystem) -> None:
    process = started(FORKED, system)

    process.forget(1.0)

    assert process.state is State.BACKOFF
    assert process.reason == "the nursery ended before it was forked"


@pytest.mark.parametrize("end", [lambda p: p.stop(0.0, STOP_BY), lambda p: p.kill(0.0)])
def test_nursery_that_ends_first_ends_a_stop(end: Callable[[Process], None], system: FakeSystem) -> None:
    process = started(FORKED, system)
    end(process)

    process.forget(1.0)

    assert process.state is State.STOPPED


def test_forked_process_that_was_reported_outlives_the_nursery(system: FakeSystem) -> None:
    process = started(FORKED, system)
    process.record_pid(7)

    process.forget(1.0)

    assert process.state is State.STARTING


def test_restarted_forked_process_has_no_pid_of_its_predecessor(system: FakeSystem) -> None:
    process = started(FORKED, system)
    process.record_pid(7)
    process.record_exit(1, 1.0, may_restart=True)

    process.start(1.0)

    assert process.pid is None


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-11, "was killed by signal 11 (Segmentation fault)"),
        (-9, "was killed by signal 9 (Killed), perhaps for want of memory"),
    ],
)
def test_status_is_described(status: int, text: str) -> None:
    assert describe_status(status).startswith(text)
