"""The supervisor's loop, played with a script of events, a fake spawner and a fake clock."""

from __future__ import annotations

import queue
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from pierhead.control import Forked, ForkFailed, NurseryReady, WorkerGone, WorkerReady
from pierhead.supervisor.events import (
    ChildrenChanged,
    Event,
    FromNursery,
    FromWorker,
    ProbeAnswered,
    SignalReceived,
)
from pierhead.supervisor.plan import NGINX, REQUIREMENTS, WORKERS
from pierhead.supervisor.probes import Probe
from pierhead.supervisor.process import BACKOFF_SECONDS, ProcessSpec
from pierhead.supervisor.spawner import NURSERY, Spawner
from pierhead.supervisor.stack import PROGRESS_SECONDS, STOP_SECONDS, Stack
from pierhead.supervisor.states import State

SERVER = "model-server-1"
STACK = (
    ProcessSpec(SERVER, ("/bin/server",)),
    ProcessSpec(WORKERS, ("/bin/workers",), stage=1),
    ProcessSpec(NGINX, ("/bin/nginx",), stage=2, stop_signal=signal.SIGQUIT),
)
NURSED_STACK = (
    ProcessSpec(NURSERY, ("/bin/nursery",)),
    ProcessSpec(SERVER, ("--port=9000",), needs=(NURSERY,), forked=True),
    *STACK[1:],
)
FORKED_PID = 7
TERM = SignalReceived(signal.SIGTERM)


class FakeSpawner(Spawner):
    """Gives pids from 100 on and records signals by name; a test says which processes have ended."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.started: list[str] = []
        self.signals: list[tuple[str, int]] = []
        self.missing_programs: set[str] = set()
        self._ended: list[tuple[int, int]] = []

    def spawn(self, spec: ProcessSpec) -> int | None:
        if spec.name in self.missing_programs:
            raise FileNotFoundError(2, "No such file or directory", spec.command[0])
        self.started.append(spec.name)
        if spec.forked:
            return None
        self.pids[spec.name] = 99 + len(self.started)
        return self.pids[spec.name]

    def kill_group(self, pid: int, number: int) -> None:
        self.signals.append((self._name(pid), number))

    def kill(self, pid: int, number: int) -> None:
        self.signals.append((self._name(pid), number))

    def reap(self) -> Iterator[tuple[int, int]]:
        while self._ended:
            yield self._ended.pop(0)

    def close(self) -> None:
        pass

    def end(self, pid: int, status: int) -> None:
        self._ended.append((pid, status))

    def _name(self, pid: int) -> str:
        return next((name for name, each in self.pids.items() if each == pid), f"pid {pid}")


class ScriptEnded(Exception):
    """The loop asks for more than the script holds."""


Step = Event | Callable[[], Event] | float


class ScriptedInbox(queue.SimpleQueue[Event]):
    """Hands out the script's events; a number lets that many seconds pass, at most as long as asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.script: deque[Step] = deque()
        self.waits: list[float | None] = []

    def get(self, block: bool = True, timeout: float | None = None) -> Event:
        assert block
        self.waits.append(timeout)
        if not self.script:
            raise ScriptEnded
        step = self.script.popleft()
        if isinstance(step, float):
            self.now += step
            raise queue.Empty
        return step() if callable(step) else step


class SpawnedProcesses:
    """What the processes of a fake spawner do, as steps of a script."""

    spawner: FakeSpawner

    def answer(self, name: str) -> Callable[[], Event]:
        return lambda: ProbeAnswered(name, self.spawner.pids[name])

    def end(self, *names: str, status: int = 0) -> Callable[[], Event]:
        def step() -> Event:
            for name in names:
                self.spawner.end(self.spawner.pids[name], status)
            return ChildrenChanged()

        return step

    def end_pid(self, pid: int, status: int = 0) -> Callable[[], Event]:
        def step() -> Event:
            self.spawner.end(pid, status)
            return ChildrenChanged()

        return step

    def nursery_says(self, message: NurseryReady | Forked | ForkFailed) -> Callable[[], Event]:
        def step() -> Event:
            if isinstance(message, Forked):
                self.spawner.pids[message.name] = message.pid
            return FromNursery(self.spawner.pids[NURSERY], message)

        return step


class World(SpawnedProcesses):
    """A stack and all that surrounds it."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec] = STACK,
        *,
        worker_count: int = 1,
        probes: Mapping[str, Probe] | None = None,
    ) -> None:
        self.spawner = FakeSpawner()
        self.inbox = ScriptedInbox()
        self.stack = Stack(
            specs,
            spawner=self.spawner,
            inbox=self.inbox,
            probes=probes or {},
            worker_count=worker_count,
            clock=lambda: self.inbox.now,
        )

    def play(self, *script: Step) -> int | None:
        """Run the loop through the script; return its status, or None where it wants to go on."""
        self.inbox.script.extend(script)
        try:
            status = self.stack.run()
        except ScriptEnded:
            return None
        assert not self.inbox.script
        return status

    def play_to_ready(self) -> World:
        """Run the loop until requests are served, and forget how it came there."""
        self.play(self.answer(SERVER), worker_is_ready(1), self.answer(NGINX))
        assert self.stack.not_ready() == ""
        self.spawner.started.clear()
        self.spawner.signals.clear()
        return self

    def state(self, name: str) -> State:
        return self.stack.processes[name].state


def worker_is_ready(pid: int) -> Event:
    return FromWorker(WorkerReady(pid))


def test_first_stage_alone_starts_at_once() -> None:
    world = World()

    world.play()

    assert world.spawner.started == [SERVER]


def test_stage_starts_when_the_one_below_is_ready() -> None:
    world = World()

    world.play(world.answer(SERVER))
    assert world.spawner.started == [SERVER, WORKERS]
    world.play(worker_is_ready(1))
    assert world.spawner.started == [SERVER, WORKERS, NGINX]


def test_once_process_has_to_end_before_the_next_stage_starts() -> None:
    world = World((ProcessSpec(REQUIREMENTS, ("/bin/pip",), once=True), *STACK))

    world.play(world.answer(SERVER))
    assert world.spawner.started == [REQUIREMENTS, SERVER]
    world.play(world.end(REQUIREMENTS))
    assert world.spawner.started == [REQUIREMENTS, SERVER, WORKERS]


def test_failed_once_process_ends_the_stack_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    world = World((ProcessSpec(REQUIREMENTS, ("/bin/pip",), once=True), *STACK))

    status = world.play(world.end(REQUIREMENTS, status=1), world.end(SERVER, status=-9))

    assert status == 1
    assert "requirements ended with status 1" in caplog.text


def test_forked_server_starts_when_the_nursery_is_ready() -> None:
    world = World(NURSED_STACK)

    world.play()
    assert world.spawner.started == [NURSERY]
    world.play(world.nursery_says(NurseryReady()))
    assert world.spawner.started == [NURSERY, SERVER]


def test_readiness_of_an_earlier_nursery_is_ignored() -> None:
    world = World(NURSED_STACK)

    world.play(FromNursery(3, NurseryReady()))

    assert world.spawner.started == [NURSERY]


def test_forked_server_is_ready_when_its_probe_answers() -> None:
    world = World(NURSED_STACK)

    world.play(
        world.nursery_says(NurseryReady()),
        world.nursery_says(Forked(SERVER, FORKED_PID)),
        world.answer(SERVER),
    )

    assert world.state(SERVER) is State.READY
    assert WORKERS in world.spawner.started


def test_probe_of_an_earlier_process_is_ignored() -> None:
    world = World()

    world.play(ProbeAnswered(SERVER, 99))

    assert world.state(SERVER) is State.STARTING


def test_probe_is_asked_in_the_background_and_its_answer_counts() -> None:
    world = World(probes={SERVER: lambda: True})

    world.play(lambda: queue.SimpleQueue.get(world.inbox, timeout=10.0))

    assert world.state(SERVER) is State.READY


def test_workers_are_ready_when_all_have_reported() -> None:
    world = World(worker_count=2)

    world.play(world.answer(SERVER), worker_is_ready(1), worker_is_ready(1))
    assert world.state(WORKERS) is State.STARTING
    world.play(worker_is_ready(2))
    assert world.state(WORKERS) is State.READY


def test_worker_that_has_gone_again_does_not_count() -> None:
    world = World(worker_count=2)

    world.play(world.answer(SERVER), worker_is_ready(1), FromWorker(WorkerGone(1)), worker_is_ready(2))

    assert world.state(WORKERS) is State.STARTING


def test_worker_that_a_signal_ends_while_it_loads_ends_the_start() -> None:
    world = World()

    world.play(world.answer(SERVER), FromWorker(WorkerGone(1, signal.SIGSEGV)))

    assert world.state(WORKERS) is State.FATAL
    assert "lost worker 1, which was killed by signal 11" in world.stack.processes[WORKERS].reason


def test_not_ready_names_what_is_missing_in_each_phase() -> None:
    world = World()

    assert world.stack.not_ready() == (
        "model-server-1 is waiting, handler-workers is waiting, nginx is waiting"
    )
    world.play()
    assert world.stack.not_ready() == (
        "model-server-1 is starting, handler-workers is waiting, nginx is waiting"
    )
    world.play(world.answer(SERVER))
    assert world.stack.not_ready() == "handler-workers is starting, nginx is waiting"
    world.play(worker_is_ready(1))
    assert world.stack.not_ready() == "nginx is starting"
    world.play(world.answer(NGINX))
    assert world.stack.not_ready() == ""
    world.play(TERM)
    assert world.stack.not_ready() == "stopping"


def test_ready_stack_without_a_handler_worker_is_not_ready() -> None:
    world = World().play_to_ready()

    world.play(FromWorker(WorkerGone(1)))
    assert world.stack.not_ready() == "no handler worker is ready"
    world.play(worker_is_ready(2))
    assert world.stack.not_ready() == ""


def test_ready_stack_whose_model_server_restarts_is_not_ready() -> None:
    world = World().play_to_ready()

    world.play(world.end(SERVER, status=1))

    assert world.stack.not_ready() == "model-server-1 is starting"


def test_nursery_that_restarts_does_not_make_the_stack_unready() -> None:
    world = World(NURSED_STACK)
    world.play(world.nursery_says(NurseryReady()), world.nursery_says(Forked(SERVER, FORKED_PID)))
    world.play_to_ready()

    world.play(world.end(NURSERY, status=1))

    assert world.state(NURSERY) is State.STARTING
    assert world.stack.not_ready() == ""


def test_exit_before_readiness_ends_the_stack_and_kills_the_rest_at_once() -> None:
    world = World((*STACK[:1], ProcessSpec("model-server-2", ("/bin/server",)), *STACK[1:]))

    world.play(world.end(SERVER, status=3))
    assert ("model-server-2", signal.SIGKILL) in world.spawner.signals
    assert world.play(world.end("model-server-2", status=-9)) == 1


def test_exit_of_the_workers_before_readiness_ends_the_stack() -> None:
    world = World()

    status = world.play(world.answer(SERVER), world.end(WORKERS, status=1), world.end(SERVER, status=-9))

    assert status == 1
    assert NGINX not in world.spawner.started


def test_program_that_cannot_be_run_ends_the_stack(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.spawner.missing_programs.add(SERVER)

    assert world.play() == 1
    assert "model-server-1 cannot be run" in caplog.text


def test_start_deadline_ends_the_stack(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    world.play(60.0)

    assert world.stack.status == 1
    assert "was not ready within 60 s" in caplog.text


def test_process_given_up_may_end_before_the_others_do() -> None:
    second = ProcessSpec("model-server-2", ("/bin/server",), start_seconds=90.0)
    world = World((*STACK[:1], second, *STACK[1:]))

    status = world.play(60.0, world.end(SERVER, status=-9), world.end("model-server-2", status=-9))

    assert status == 1


def test_loop_waits_for_the_end_of_a_process_that_was_given_up() -> None:
    world = World()

    assert world.play(60.0) is None
    assert world.play(world.end(SERVER, status=-9)) == 1


@pytest.mark.parametrize("name", [SERVER, WORKERS, NGINX])
def test_exit_after_readiness_starts_the_process_again(name: str) -> None:
    world = World().play_to_ready()

    world.play(world.end(name, status=-11))

    assert [name] == world.spawner.started


def test_workers_of_a_dead_master_are_forgotten() -> None:
    world = World().play_to_ready()

    world.play(world.end(WORKERS, status=-9), world.answer(WORKERS))

    assert world.stack.not_ready() == "no handler worker is ready"


def test_second_failure_waits_before_the_restart() -> None:
    world = World().play_to_ready()

    world.play(world.end(SERVER, status=1), world.end(SERVER, status=1))
    assert world.spawner.started == [SERVER]
    assert world.inbox.waits[-1] == BACKOFF_SECONDS[1]
    world.play(BACKOFF_SECONDS[1])
    assert world.spawner.started == [SERVER, SERVER]


def test_restart_limit_ends_the_ready_stack_in_order_with_status_one() -> None:
    world = World().play_to_ready()
    for seconds in BACKOFF_SECONDS:
        world.play(world.end(SERVER, status=1), seconds)

    world.play(world.end(SERVER, status=1))
    assert world.spawner.signals[-1] == (NGINX, signal.SIGQUIT)
    assert world.play(world.end(NGINX), world.end(WORKERS)) == 1


def test_sigterm_during_the_start_kills_at_once_with_status_zero() -> None:
    world = World()

    world.play(TERM)
    assert world.spawner.signals == [(SERVER, signal.SIGKILL)]
    assert world.play(world.end(SERVER, status=-9)) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_stop_of_a_ready_stack_goes_from_nginx_to_the_servers(number: int) -> None:
    world = World().play_to_ready()

    world.play(SignalReceived(number))
    assert world.spawner.signals == [(NGINX, signal.SIGQUIT)]
    world.play(world.end(NGINX))
    assert world.spawner.signals[-1] == (WORKERS, signal.SIGTERM)
    world.play(world.end(WORKERS))
    assert world.spawner.signals[-1] == (SERVER, signal.SIGTERM)
    assert world.play(world.end(SERVER)) == 0


def test_nothing_is_started_again_during_a_stop() -> None:
    world = World().play_to_ready()

    status = world.play(TERM, world.end(SERVER, status=1), world.end(NGINX), world.end(WORKERS))

    assert status == 0
    assert world.spawner.started == []


def test_second_signal_kills_what_still_runs() -> None:
    world = World().play_to_ready()

    world.play(TERM, TERM)

    killed = {name for name, number in world.spawner.signals if number == signal.SIGKILL}
    assert {NGINX, WORKERS, SERVER} == killed
    assert world.play(world.end(NGINX, WORKERS, SERVER, status=-9)) == 0


def test_all_are_killed_at_the_deadline_of_a_stop() -> None:
    world = World().play_to_ready()

    world.play(TERM)
    assert world.inbox.waits[-1] == STOP_SECONDS
    world.play(STOP_SECONDS)

    killed = {name for name, number in world.spawner.signals if number == signal.SIGKILL}
    assert {NGINX, WORKERS, SERVER} == killed
    assert world.play(world.end(NGINX, WORKERS, SERVER, status=-9)) == 0


def test_process_in_backoff_does_not_delay_a_stop() -> None:
    world = World().play_to_ready()

    world.play(world.end(SERVER, status=1), world.end(SERVER, status=1), TERM, world.end(NGINX))

    assert world.play(world.end(WORKERS)) == 0


def test_strange_child_is_reaped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    world = World().play_to_ready()
    caplog.clear()

    world.play(world.end_pid(4242, status=1))

    assert world.stack.not_ready() == ""
    assert caplog.text == ""


def test_exit_of_a_fork_that_arrives_before_its_message_is_kept() -> None:
    world = World(NURSED_STACK)

    status = world.play(
        world.nursery_says(NurseryReady()),
        world.end_pid(FORKED_PID, status=2),
        world.nursery_says(Forked(SERVER, FORKED_PID)),
        world.end(NURSERY, status=-9),
    )

    assert status == 1
    assert world.stack.processes[SERVER].reason == "ended with status 2 before it was ready"


def test_fork_that_arrives_after_a_stop_began_is_killed() -> None:
    world = World(NURSED_STACK)

    world.play(world.nursery_says(NurseryReady()), TERM, world.nursery_says(Forked(SERVER, FORKED_PID)))

    assert (SERVER, signal.SIGKILL) in world.spawner.signals
    assert world.play(world.end(NURSERY, SERVER, status=-9)) == 0


def test_nursery_that_ends_during_a_stop_ends_the_wait_for_its_fork() -> None:
    world = World(NURSED_STACK)

    status = world.play(world.nursery_says(NurseryReady()), TERM, world.end(NURSERY, status=-9))

    assert status == 0


def test_nursery_that_dies_before_its_fork_ends_a_stack_that_was_never_ready() -> None:
    world = World(NURSED_STACK)

    status = world.play(world.nursery_says(NurseryReady()), world.end(NURSERY, status=-11))

    assert status == 1


def test_server_in_backoff_waits_for_the_nursery_without_spinning() -> None:
    world = World(NURSED_STACK)
    world.play(world.nursery_says(NurseryReady()), world.nursery_says(Forked(SERVER, FORKED_PID)))
    world.play_to_ready()

    world.play(world.end(NURSERY, SERVER, status=-9))
    assert world.spawner.started == [NURSERY]
    assert world.inbox.waits[-1] != 0.0

    world.play(world.nursery_says(NurseryReady()))
    assert world.spawner.started == [NURSERY, SERVER]


def test_unexpected_messages_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    world = World().play_to_ready()

    world.play(FromWorker(NurseryReady()))

    assert "a handler worker sent NurseryReady" in caplog.text
    assert world.stack.not_ready() == ""


def waiting_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("waiting for")]


def test_slow_start_says_every_ten_seconds_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pierhead")
    world = World()

    world.play(9.0, 1.0, 3.0, world.answer(SERVER), 7.0, 5.0)

    assert waiting_lines(caplog) == [f"waiting for {SERVER} seconds=10", f"waiting for {WORKERS} seconds=20"]
    assert max(wait for wait in world.inbox.waits if wait is not None) <= PROGRESS_SECONDS


def test_stack_that_is_ready_or_stops_says_no_more_of_waiting(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pierhead")
    ready = World().play_to_ready()
    ready.play(60.0)
    stopping = World()
    stopping.play(TERM, 20.0)

    assert waiting_lines(caplog) == []
    assert None in ready.inbox.waits
