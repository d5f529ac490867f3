"""The supervisor's loop: one inbox of facts, one table of processes, one place that decides.

The stack's own processes are one group; each loaded model of a multi-model endpoint is another. A process of
the stack that is given up ends the stack, with its reason; one of a model ends that model. Stages stop from
the highest down, those of all groups together, so that requests in flight find what they need; SIGKILL for
all at the deadline.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from pierhead import control
from pierhead.supervisor.events import (
    ChildrenChanged,
    Event,
    FromNursery,
    FromWorker,
    ModelEvent,
    ProbeAnswered,
    SignalReceived,
)
from pierhead.supervisor.group import ProcessGroup, Surroundings, stop_highest_stage
from pierhead.supervisor.models.table import ModelTable
from pierhead.supervisor.plan import WORKERS
from pierhead.supervisor.probes import Probe
from pierhead.supervisor.process import Process, ProcessSpec
from pierhead.supervisor.spawner import NURSERY, Spawner
from pierhead.supervisor.states import State

__all__ = ["Stack"]

STOP_SECONDS = 25.0
PROGRESS_SECONDS = 10.0
log = logging.getLogger(__name__)


class Stack:
    """All processes, from start to stop; `models` is the table of a multi-model endpoint."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        *,
        spawner: Spawner,
        inbox: queue.SimpleQueue[Event],
        probes: Mapping[str, Probe],
        worker_count: int,
        clock: Callable[[], float],
        models: ModelTable | None = None,
    ) -> None:
        self.status = 0
        self.models = models
        self._own = ProcessGroup(
            specs,
            Surroundings(spawner, inbox.put, clock),
            probes=probes,
            workers=WORKERS,
            worker_count=worker_count,
        )
        self._spawner = spawner
        self._inbox = inbox
        self._clock = clock
        self._started = clock()
        self._next_progress = self._started + PROGRESS_SECONDS
        self._early_exits: dict[int, int] = {}
        self._was_ready = False
        self._stop_deadline: float | None = None
        if models is not None:
            models.open(self._own.processes)

    @property
    def processes(self) -> dict[str, Process]:
        """All processes by name, those of loaded models too."""
        return {name: process for group in self._groups() for name, process in group.processes.items()}

    @property
    def worker_restarts(self) -> Counter[str]:
        """How many handler workers of the stack's own have ended, by how."""
        return self._own.worker_restarts

    def run(self) -> int:
        """Run until all processes have ended; return the exit status."""
        now = self._advance()
        while not self._is_over:
            with contextlib.suppress(queue.Empty):
                self._handle(self._inbox.get(timeout=self._seconds_to_deadline(now)))
            now = self._advance()
        return self.status

    def not_ready(self) -> str:
        """Return what is not ready, for /ping; empty when requests are served. Models are none of it."""
        return "stopping" if self._is_stopping else ", ".join(self._own.waiting())

    def _groups(self) -> Iterator[ProcessGroup]:
        yield self._own
        if self.models is not None:
            yield from self.models.groups()

    @property
    def _is_stopping(self) -> bool:
        return self._stop_deadline is not None

    @property
    def _is_over(self) -> bool:
        return self._is_stopping and all(group.is_over for group in self._groups())

    def _handle(self, event: Event) -> None:
        match event:
            case SignalReceived(number):
                self._stop_on_signal(number)
            case ChildrenChanged():
                for pid, status in self._spawner.reap():
                    self._record_exit(pid, status)
            case ProbeAnswered(name, pid):
                if (group := self._group_of(name)) is not None:
                    group.note_probe(name, pid)
            case FromWorker(message):
                self._note_report(message)
            case FromNursery(pid, message):
                self._note_nursery(pid, message)
            case ModelEvent() if self.models is not None:
                self.models.handle(event, self._clock())

    def _group_of(self, name: str) -> ProcessGroup | None:
        """Return the group of the process; None where its model has been unloaded meanwhile."""
        return next((group for group in self._groups() if name in group.processes), None)

    def _advance(self) -> float:
        """Do all that is due; return the time up to which that is."""
        now = self._clock()
        self._own.advance(now, may_start=not self._is_stopping)
        if self.models is not None:
            self.models.advance(now)
        self._give_up_if_hopeless()
        if self._is_stopping:
            self._advance_stop(now)
        elif not self._was_ready:
            self._advance_start(now)
        return now

    def _advance_start(self, now: float) -> None:
        """Note that all is ready; or say, now and then, what is waited for."""
        if self._own.was_ready:
            self._was_ready = True
            log.info("ready seconds=%.1f", now - self._started)
        elif now >= self._next_progress:
            self._next_progress = now + PROGRESS_SECONDS
            starting = (each.name for each in self._own.processes.values() if each.state is State.STARTING)
            log.info("waiting for %s seconds=%.0f", ", ".join(starting), now - self._started)

    def _record_exit(self, pid: int, status: int) -> None:
        """Note an exit. A stranger's is kept while a fork is under way: it may be the newborn's."""
        for group in self._groups():
            for process in group.processes.values():
                if process.pid == pid:
                    group.record_exit(process, status)
                    if process.name == NURSERY:
                        for each in self._groups():
                            each.forget_forks()
                    return
        if any(group.is_forking for group in self._groups()):
            self._early_exits[pid] = status

    def _note_report(self, message: control.Message) -> None:
        match message:
            case (
                control.WorkerReady(process=name)
                | control.WorkerGone(process=name)
                | control.StartFailed(process=name)
            ):
                if (group := self._group_of(name)) is None:
                    log.debug("%s: its model has been unloaded", message)
                elif isinstance(message, control.StartFailed):
                    group.start_failure = group.start_failure or message
                else:
                    group.note_worker(message, is_stopping=self._is_stopping)
            case _:
                log.warning("a handler worker sent %s", type(message).__name__)

    def _note_nursery(self, nursery: int, message: control.Message) -> None:
        own = self._own.processes.get(NURSERY)
        is_present = own is not None and own.pid == nursery
        match message:
            case control.NurseryReady() if own is not None and is_present:
                self._own.note_ready(own)
            case control.Forked(name, pid):
                self._note_forked(name, pid, is_present=is_present)
            case control.ForkFailed(name, error_number):
                if is_present and (group := self._group_of(name)) is not None:
                    group.note_fork_failed(name, error_number)
            case _:
                log.warning("the nursery sent %s", type(message).__name__)

    def _note_forked(self, name: str, pid: int, *, is_present: bool) -> None:
        group = self._group_of(name)
        if not is_present or group is None:
            # Its place was given to a new fork when the nursery that made it had ended.
            self._spawner.kill_group(pid, signal.SIGKILL)
            return
        group.note_forked(name, pid)
        if pid in self._early_exits:
            self._record_exit(pid, self._early_exits.pop(pid))
        if not any(each.is_forking for each in self._groups()):
            self._early_exits.clear()

    def _give_up_if_hopeless(self) -> None:
        process = self._own.hopeless
        if process is not None and not self._is_stopping:
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
        if self.models is not None:
            self.models.begin_stop()
        if at_once:
            self._kill_all()

    def _kill_all(self) -> None:
        for group in self._groups():
            group.kill()

    def _advance_stop(self, now: float) -> None:
        assert self._stop_deadline is not None
        stop_highest_stage(self.processes.values(), now, self._stop_deadline)

    def _seconds_to_deadline(self, now: float) -> float | None:
        """Return how long to wait for an event; what was due at `now` waits for others, not for time."""
        deadlines = [deadline for group in self._groups() for deadline in group.deadlines()]
        if self.models is not None:
            deadlines += self.models.deadlines()
        if not self._was_ready and not self._is_stopping:
            deadlines.append(self._next_progress)
        ahead = [deadline for deadline in deadlines if deadline > now]
        return max(0.0, min(ahead) - self._clock()) if ahead else None
