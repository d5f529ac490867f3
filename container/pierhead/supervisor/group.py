"""Processes that live and end together: the stack's own, or those of one loaded model.

Within a group stages start in order, each when the one below it is ready. A process that ends before the
group was ready once is given up, with its reason; later it is started again with a growing delay, up to a
limit. What that means for the group is its owner's to decide.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pierhead import control
from pierhead.supervisor.events import ProbeAnswered
from pierhead.supervisor.probes import Probe, start_probe
from pierhead.supervisor.process import Process, ProcessSpec, describe_signal, exit_class
from pierhead.supervisor.spawner import NURSERY, Spawner
from pierhead.supervisor.states import State

__all__ = ["ProcessGroup", "Surroundings", "stop_highest_stage"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """What groups have in common: who spawns, where a probe's answer goes, and the monotonic clock."""

    spawner: Spawner
    report: Callable[[ProbeAnswered], None]
    clock: Callable[[], float]


class ProcessGroup:
    """Processes by name, from their start to their end.

    `workers` names the one whose readiness is that of `worker_count` handler workers. `outer` are processes
    of another group that ones here may need.
    """

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        surroundings: Surroundings,
        *,
        probes: Mapping[str, Probe],
        workers: str,
        worker_count: int,
        outer: Mapping[str, Process] | None = None,
    ) -> None:
        self.processes = {spec.name: Process(spec, surroundings.spawner) for spec in specs}
        self.was_ready = False
        self.worker_restarts: Counter[str] = Counter()
        self.start_failure: control.StartFailed | None = None
        self._surroundings = surroundings
        self._probes = probes
        self._worker_process = self.processes.get(workers)
        self._worker_count = worker_count
        self._outer = outer or {}
        self._workers: set[int] = set()
        self._asking: dict[str, threading.Event] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing will."""
        return all(process.is_over for process in self.processes.values())

    @property
    def is_forking(self) -> bool:
        """Whether the nursery has yet to tell the pid of a process."""
        asked = (State.STARTING, State.STOPPING, State.KILLING)
        return any(
            process.spec.forked and process.pid is None and process.state in asked
            for process in self.processes.values()
        )

    @property
    def hopeless(self) -> Process | None:
        """Return the process that was given up, if one was."""
        return next((each for each in self.processes.values() if each.state is State.FATAL), None)

    def waiting(self) -> list[str]:
        """Return what is not ready, a few words each; a nursery that is away delays no request."""
        waiting = [
            f"{process.name} is {process.state.value}"
            for process in list(self.processes.values())
            if not process.is_settled and process.name != NURSERY
        ]
        if not waiting and self._worker_process is not None and not self._workers:
            waiting.append("no handler worker is ready")
        return waiting

    def are_ready(self, names: Sequence[str]) -> bool:
        """Return whether these processes take requests; a master without a worker does not."""
        workers = self._worker_process
        has_worker = workers is None or workers.name not in names or bool(self._workers)
        return has_worker and all(self.processes[name].is_settled for name in names)

    def advance(self, now: float, *, may_start: bool = True) -> None:
        """Do what is due, and note when all is ready for the first time."""
        for process in self.processes.values():
            process.advance(now)
            if may_start and process.may_start(now) and self._is_wanted(process):
                self._start(process)
        if may_start and not self.was_ready:
            self.was_ready = not self.waiting()

    def note_probe(self, name: str, pid: int) -> None:
        """Note that a process answers, if it is still the one that was asked."""
        if self.processes[name].pid == pid:
            self.note_ready(self.processes[name])

    def note_ready(self, process: Process) -> None:
        """Note that a process is ready."""
        if process.become_ready(self._surroundings.clock()):
            log.info("%s is ready pid=%s", process.name, process.pid)

    def note_forked(self, name: str, pid: int) -> None:
        """Take the pid of a process that the nursery has forked."""
        process = self.processes[name]
        process.record_pid(pid)
        self._ask(process)

    def note_fork_failed(self, name: str, error_number: int) -> None:
        """Note that the system has no room for a process."""
        now = self._surroundings.clock()
        self.processes[name].fail_to_start(error_number, now, may_restart=self.was_ready)

    def note_worker(self, message: control.WorkerReady | control.WorkerGone, *, is_stopping: bool) -> None:
        """Note that a handler worker has come or gone."""
        if self._worker_process is None:
            return
        if isinstance(message, control.WorkerReady):
            self._workers.add(message.pid)
        else:
            self._workers.discard(message.pid)
            if not is_stopping:
                self._note_worker_gone(self._worker_process, message)
        if len(self._workers) >= self._worker_count:
            self.note_ready(self._worker_process)

    def record_exit(self, process: Process, status: int) -> None:
        """Note that a process has ended."""
        self._forget_probe(process)
        process.record_exit(status, self._surroundings.clock(), may_restart=self.was_ready)
        if process is self._worker_process:
            self._workers.clear()

    def forget_forks(self) -> None:
        """Note that the nursery has ended: what it was asked for and has not told of will not come."""
        for process in self.processes.values():
            if process.spec.forked:
                process.forget(self._surroundings.clock())

    def kill(self) -> None:
        """End all processes now."""
        for process in self.processes.values():
            process.kill(self._surroundings.clock())

    def deadlines(self) -> list[float]:
        """Return when `advance` has something to do without an event."""
        return [process.deadline for process in self.processes.values() if process.deadline is not None]

    def _is_wanted(self, process: Process) -> bool:
        """Return whether all that the process waits for is there."""
        lower = (each for each in self.processes.values() if each.spec.stage < process.spec.stage)
        return (process.state is not State.WAITING or all(each.is_settled for each in lower)) and all(
            (self.processes.get(name) or self._outer[name]).is_settled for name in process.spec.needs
        )

    def _start(self, process: Process) -> None:
        try:
            process.start(self._surroundings.clock())
        except OSError as problem:
            process.give_up(f"cannot be run: {problem}", self._surroundings.clock(), problem.errno)
            return
        if process.pid is not None:
            self._ask(process)

    def _ask(self, process: Process) -> None:
        probe = self._probes.get(process.name)
        if probe is not None and process.pid is not None:
            report = self._surroundings.report
            self._asking[process.name] = start_probe(process.name, process.pid, probe, report)

    def _forget_probe(self, process: Process) -> None:
        asking = self._asking.pop(process.name, None)
        if asking is not None:
            asking.set()

    def _note_worker_gone(self, process: Process, message: control.WorkerGone) -> None:
        """Note that a worker has ended; one that a signal ends before the group was ready ends the start.

        Its successors would import the same hooks and meet the same fate.
        """
        pid, number = message.pid, message.signal
        self.worker_restarts[exit_class(-number)] += 1
        if number and process.state is State.STARTING and not self.was_ready:
            process.status = -number
            reason = f"lost worker {pid}, which {describe_signal(number)}"
            process.give_up(reason, self._surroundings.clock())
        elif number:
            log.error("handler worker %s %s; another takes its place", pid, describe_signal(number))


def stop_highest_stage(processes: Iterable[Process], now: float, deadline: float) -> None:
    """Stop the highest stage that still runs, so that requests in flight find what is below it.

    At the deadline all are killed.
    """
    running = [process for process in processes if not process.is_over]
    highest = max((process.spec.stage for process in running), default=0)
    for process in running:
        if process.spec.stage == highest:
            process.stop(now, deadline)
        if now >= deadline:
            process.kill(now)
