"""The supervisor's loop: one inbox of facts, one table of processes, one place that decides.

Stages start in order: model servers, handler workers, nginx. A process that ends before the stack was ready
once ends the stack, with its reason; later it is started again with a growing delay, up to a limit. Stages
stop in the reverse order, each when the one above it has ended, so that requests in flight find what they
need; SIGKILL for all at the deadline.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from pierhead import control
from pierhead.supervisor.events import (
    ChildrenChanged,
    Event,
    FromNursery,
    FromWorker,
    ProbeAnswered,
    SignalReceived,
)
from pierhead.supervisor.plan import WORKERS
from pierhead.supervisor.probes import Probe, start_probe
from pierhead.supervisor.process import Process, ProcessSpec, describe_signal, exit_class
from pierhead.supervisor.spawner import NURSERY, Spawner
from pierhead.supervisor.states import State

__all__ = ["Stack"]

STOP_SECONDS = 25.0
PROGRESS_SECONDS = 10.0
log = logging.getLogger(__name__)


class Stack:
    """All processes, from start to stop."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        *,
        spawner: Spawner,
        inbox: queue.SimpleQueue[Event],
        probes: Mapping[str, Probe],
        worker_count: int,
        clock: Callable[[], float],
    ) -> None:
        self.processes = {spec.name: Process(spec, spawner) for spec in specs}
        self.status = 0
        self.worker_restarts: Counter[str] = Counter()
        self._spawner = spawner
        self._inbox = inbox
        self._probes = probes
        self._worker_count = worker_count
        self._clock = clock
        self._started = clock()
        self._next_progress = self._started + PROGRESS_SECONDS
        self._workers: set[int] = set()
        self._asking: dict[str, threading.Event] = {}
        self._early_exits: dict[int, int] = {}
        self._was_ready = False
        self._stop_deadline: float | None = None

    def run(self) -> int:
        """Run until all processes have ended; return the exit status."""
        now = self._advance()
        while not self._is_over:
            with contextlib.suppress(queue.Empty):
                self._handle(self._inbox.get(timeout=self._seconds_to_deadline(now)))
            now = self._advance()
        return self.status

    def not_ready(self) -> str:
        """Return what is not ready, for /ping; empty when requests are served."""
        if self._is_stopping:
            return "stopping"
        waiting = [
            f"{process.name} is {process.state.value}"
            for process in list(self.processes.values())
            if not process.is_settled and process.name != NURSERY
        ]
        if not waiting and not self._workers:
            waiting.append("no handler worker is ready")
        return ", ".join(waiting)

    @property
    def _is_stopping(self) -> bool:
        return self._stop_deadline is not None

    @property
    def _is_over(self) -> bool:
        return self._is_stopping and all(process.is_over for process in self.processes.values())

    def _handle(self, event: Event) -> None:
        match event:
            case SignalReceived(number):
                self._stop_on_signal(number)
            case ChildrenChanged():
                for pid, status in self._spawner.reap():
                    self._record_exit(pid, status)
            case ProbeAnswered(name, pid):
                if self.processes[name].pid == pid:
                    self._note_ready(self.processes[name])
            case FromWorker(message):
                self._note_worker(message)
            case FromNursery(pid, message):
                self._note_nursery(pid, message)

    def _advance(self) -> float:
        """Do all that is due; return the time up to which that is."""
        now = self._clock()
        for process in self.processes.values():
            process.advance(now)
            if not self._is_stopping and process.may_start(now) and self._is_wanted(process):
                self._start(process)
        self._give_up_if_hopeless()
        if self._is_stopping:
            self._advance_stop(now)
        elif not self._was_ready:
            self._advance_start(now)
        return now

    def _advance_start(self, now: float) -> None:
        """Note that all is ready; or say, now and then, what is waited for."""
        if not self.not_ready():
            self._was_ready = True
            log.info("ready seconds=%.1f", now - self._started)
        elif now >= self._next_progress:
            self._next_progress = now + PROGRESS_SECONDS
            starting = (each.name for each in self.processes.values() if each.state is State.STARTING)
            log.info("waiting for %s seconds=%.0f", ", ".join(starting), now - self._started)

    def _is_wanted(self, process: Process) -> bool:
        """Return whether all that the process waits for is there."""
        lower = (each for each in self.processes.values() if each.spec.stage < process.spec.stage)
        return (process.state is not State.WAITING or all(each.is_settled for each in lower)) and all(
            self.processes[name].is_settled for name in process.spec.needs
        )

    def _start(self, process: Process) -> None:
        try:
            process.start(self._clock())
        except OSError as problem:
            process.give_up(f"cannot be run: {problem}", self._clock())
            return
        if process.pid is not None:
            self._ask(process)

    def _ask(self, process: Process) -> None:
        probe = self._probes.get(process.name)
        if probe is not None and process.pid is not None:
            self._asking[process.name] = start_probe(process.name, process.pid, probe, self._inbox.put)

    def _note_ready(self, process: Process) -> None:
        if process.become_ready(self._clock()):
            log.info("%s is ready pid=%s", process.name, process.pid)

    def _record_exit(self, pid: int, status: int) -> None:
        """Note an exit. A stranger's is kept while a fork is under way: it may be the newborn's."""
        process = next((each for each in self.processes.values() if each.pid == pid), None)
        if process is None:
            if any(each.spec.forked and each.pid is None for each in self.processes.values()):
                self._early_exits[pid] = status
            return
        self._forget_probe(process)
        process.record_exit(status, self._clock(), may_restart=self._was_ready)
        if process.name == WORKERS:
            self._workers.clear()
        if process.name == NURSERY:
            for forked in self.processes.values():
                if forked.spec.forked:
                    forked.forget(self._clock())

    def _forget_probe(self, process: Process) -> None:
        asking = self._asking.pop(process.name, None)
        if asking is not None:
            asking.set()

    def _note_worker(self, message: control.Message) -> None:
        match message:
            case control.WorkerReady(pid):
                self._workers.add(pid)
            case control.WorkerGone(pid, number):
                self._workers.discard(pid)
                if not self._is_stopping:
                    self._note_worker_gone(pid, number)
            case _:
                log.warning("a handler worker sent %s", type(message).__name__)
        if len(self._workers) >= self._worker_count:
            self._note_ready(self.processes[WORKERS])

    def _note_worker_gone(self, pid: int, number: int) -> None:
        """Note that a worker has ended; one that a signal ends before the stack was ready ends the start.

        Its successors would import the same hooks and meet the same fate.
        """
        process = self.processes[WORKERS]
        self.worker_restarts[exit_class(-number)] += 1
        if number and process.state is State.STARTING and not self._was_ready:
            process.give_up(f"lost worker {pid}, which {describe_signal(number)}", self._clock())
        elif number:
            log.error("handler worker %s %s; another takes its place", pid, describe_signal(number))

    def _note_nursery(self, nursery: int, message: control.Message) -> None:
        match message:
            case control.NurseryReady() if self.processes[NURSERY].pid == nursery:
                self._note_ready(self.processes[NURSERY])
            case control.Forked(_, pid) if self.processes[NURSERY].pid != nursery:
                # Its place was given to a new fork when the nursery that made it had ended.
                self._spawner.kill_group(pid, signal.SIGKILL)
            case control.Forked(name, pid):
                self._note_forked(self.processes[name], pid)
            case _:
                log.warning("the nursery sent %s", type(message).__name__)

    def _note_forked(self, process: Process, pid: int) -> None:
        process.record_pid(pid)
        self._ask(process)
        if pid in self._early_exits:
            self._record_exit(pid, self._early_exits[pid])
        self._early_exits.clear()

    def _give_up_if_hopeless(self) -> None:
        for process in self.processes.values():
            if process.state is State.FATAL and not self._is_stopping:
                log.error("cannot go on: %s %s", process.name, process.reason)
                self._begin_stop(status=1, at_once=not self._was_ready)

    def _stop_on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._is_stopping:
            log.info("%s again: what still runs is killed", name)
            self._kill_all()
            return
        log.info("%s: stopping", name)
        self._begin_stop(status=0, at_once=not self._was_ready)

    def _begin_stop(self, *, status: int, at_once: bool) -> None:
        self.status = status
        self._stop_deadline = self._clock() + STOP_SECONDS
        if at_once:
            self._kill_all()

    def _kill_all(self) -> None:
        for process in self.processes.values():
            process.kill(self._clock())

    def _advance_stop(self, now: float) -> None:
        """Stop the highest stage that still runs."""
        assert self._stop_deadline is not None
        running = [process for process in self.processes.values() if not process.is_over]
        highest = max((process.spec.stage for process in running), default=0)
        for process in running:
            if process.spec.stage == highest:
                process.stop(now, self._stop_deadline)
            if now >= self._stop_deadline:
                process.kill(now)

    def _seconds_to_deadline(self, now: float) -> float | None:
        """Return how long to wait for an event; what was due at `now` waits for others, not for time."""
        deadlines = [process.deadline for process in self.processes.values() if process.deadline is not None]
        if not self._was_ready and not self._is_stopping:
            deadlines.append(self._next_progress)
        ahead = [deadline for deadline in deadlines if deadline > now]
        return max(0.0, min(ahead) - self._clock()) if ahead else None
