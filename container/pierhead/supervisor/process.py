"""One process of the stack as a state machine: when it starts, restarts, is given up, and how it is stopped.

The machine decides and remembers; an `OperatingSystem` acts. Time is a monotonic number of seconds that the
caller hands in, so that a test needs neither clock nor process.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pierhead.supervisor.memory_limit import describe_want, memory_limit
from pierhead.supervisor.states import LEGAL_MOVES, State

__all__ = ["OperatingSystem", "Process", "ProcessSpec", "describe_signal", "describe_status", "exit_class"]

BACKOFF_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0)
STEADY_SECONDS = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessSpec:
    """How a process is run.

    A stage starts when the stages below it are ready, and stops when those above it have ended; `needs` names
    processes that must be ready at every start. `forked` processes are made by the nursery from `command`'s
    arguments. `once`: it runs to its end before the stack is ready. `start_seconds` bounds the time to
    readiness, and `limit` is what a message about it names. `keeps_stdout`: its standard output is ours.
    """

    name: str
    command: tuple[str, ...]
    stage: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    forked: bool = False
    once: bool = False
    stop_signal: int = signal.SIGTERM
    start_seconds: float = 60.0
    limit: str = "SAGEMAKER_TFS_WAIT_TIME_SECONDS"
    keeps_stdout: bool = False


class OperatingSystem(Protocol):
    """What a process needs of the world."""

    def spawn(self, spec: ProcessSpec) -> int | None:
        """Start the process; return its pid, or None where it will be reported later."""

    def kill_group(self, pid: int, number: int) -> None:
        """Send a signal to the process group that `pid` leads; a group that is gone is no error."""

    def kill(self, pid: int, number: int) -> None:
        """Send a signal to one process; a process that is gone is no error."""


class Process:
    """A process of the stack, from waiting to stopped."""

    def __init__(self, spec: ProcessSpec, system: OperatingSystem) -> None:
        self.spec = spec
        self.state = State.WAITING
        self.pid: int | None = None
        self.last_pid: int | None = None
        self.reason = ""
        self.status: int | None = None
        self.error_number: int | None = None
        self.restarts: Counter[str] = Counter()
        self._system = system
        self._failures = 0
        self._since = 0.0
        self._deadline: float | None = None

    @property
    def name(self) -> str:
        """The name in logs and messages."""
        return self.spec.name

    @property
    def is_settled(self) -> bool:
        """Whether what waits for this process may go on."""
        return self.state in (State.READY, State.DONE)

    @property
    def is_over(self) -> bool:
        """Whether no process runs and none will."""
        return self.state in (State.STOPPED, State.DONE) or (self.state is State.FATAL and self.pid is None)

    @property
    def deadline(self) -> float | None:
        """When `advance` has to be called next."""
        return self._deadline

    def start(self, now: float) -> None:
        """Spawn the process."""
        self._move(State.STARTING, now, now + self.spec.start_seconds)
        self.pid = self._system.spawn(self.spec)

    def record_pid(self, pid: int) -> None:
        """Take the pid of a process that the nursery forked; a stop that came first takes effect now."""
        self.pid = pid
        if self.state is State.STOPPING:
            self._system.kill(pid, self.spec.stop_signal)
        elif self.state in (State.KILLING, State.STOPPED, State.FATAL):
            self._system.kill_group(pid, signal.SIGKILL)

    def become_ready(self, now: float) -> bool:
        """Note that the process answers; return whether that is news."""
        if self.state is not State.STARTING:
            return False
        self._move(State.READY, now, None)
        return True

    def record_exit(self, status: int, now: float, *, may_restart: bool) -> None:
        """Note that the process has ended with this wait status, and kill what it left behind.

        A master killed at once leaves workers that hold its listening socket; no successor could bind it.
        """
        if self.pid is not None:
            self._system.kill_group(self.pid, signal.SIGKILL)
        self.pid, self.last_pid = None, self.pid
        if self.state in (State.STARTING, State.READY):
            self.status = status
        if self.state in (State.STOPPING, State.KILLING):
            self._move(State.STOPPED, now, None)
        elif self.state in (State.STOPPED, State.FATAL):
            return
        elif self.spec.once and status == 0:
            self._move(State.DONE, now, None)
        elif may_restart:
            self._fail(describe_status(status), exit_class(status), now)
        else:
            self.give_up(f"{describe_status(status)} before it was ready", now)

    def give_up(self, reason: str, now: float, error_number: int | None = None) -> None:
        """End the process for good; `error_number` is what the system said when it could not be run."""
        self.reason = reason
        self.error_number = error_number
        if self.pid is not None:
            self._system.kill_group(self.pid, signal.SIGKILL)
        self._move(State.FATAL, now, None)

    def stop(self, now: float, deadline: float) -> None:
        """Ask the process to end by `deadline`, when it is killed."""
        if self.state in (State.WAITING, State.BACKOFF):
            self._move(State.STOPPED, now, None)
        elif self.state in (State.STARTING, State.READY):
            self._move(State.STOPPING, now, deadline)
            if self.pid is not None:
                self._system.kill(self.pid, self.spec.stop_signal)

    def kill(self, now: float) -> None:
        """End the process and all that it started, now."""
        if self.state in (State.WAITING, State.BACKOFF):
            self._move(State.STOPPED, now, None)
        elif self.state in (State.STARTING, State.READY, State.STOPPING):
            self._move(State.KILLING, now, None)
            if self.pid is not None:
                self._system.kill_group(self.pid, signal.SIGKILL)

    def fail_to_start(self, error_number: int, now: float, *, may_restart: bool) -> None:
        """Note that the nursery could not fork the process."""
        self.error_number = error_number
        reason = f"could not be forked: {os.strerror(error_number)}"
        if self.state in (State.STOPPING, State.KILLING):
            self._move(State.STOPPED, now, None)
        elif may_restart:
            self._fail(reason, "nursery", now)
        else:
            self.give_up(reason, now, error_number)

    def forget(self, now: float) -> None:
        """Note that a process which was never reported can no longer come (its nursery has ended)."""
        if self.pid is None and self.state is State.STARTING:
            self._fail("the nursery ended before it was forked", "nursery", now)
        elif self.pid is None and self.state in (State.STOPPING, State.KILLING):
            self._move(State.STOPPED, now, None)

    def advance(self, now: float) -> None:
        """Act on a deadline that has passed."""
        if self._deadline is None or now < self._deadline:
            return
        if self.state is State.STARTING:
            seconds = int(self.spec.start_seconds)
            self.give_up(f"was not ready within {seconds} s ({self.spec.limit})", now)
        elif self.state is State.STOPPING:
            log.warning("%s did not stop in time and is killed", self.name)
            self.kill(now)

    def may_start(self, now: float) -> bool:
        """Whether the process waits for nothing but others."""
        if self.state is State.BACKOFF:
            return self._deadline is None or now >= self._deadline
        return self.state is State.WAITING

    def _fail(self, reason: str, kind: str, now: float) -> None:
        was_steady = self.state is State.READY and now - self._since >= STEADY_SECONDS
        self._failures = 1 if was_steady else self._failures + 1
        self.reason = reason
        if self._failures > len(BACKOFF_SECONDS):
            self._move(State.FATAL, now, None)
            return
        self.restarts[kind] += 1
        delay = BACKOFF_SECONDS[self._failures - 1]
        log.warning("%s %s; it is started again in %g s", self.name, reason, delay)
        self._move(State.BACKOFF, now, now + delay)

    def _move(self, state: State, now: float, deadline: float | None) -> None:
        if state not in LEGAL_MOVES[self.state]:
            raise AssertionError(f"{self.name}: {self.state.name} -> {state.name} is not a legal move")
        self.state, self._since, self._deadline = state, now, deadline


def exit_class(status: int) -> str:
    """Return the class of a wait status, a label of metrics: `ended`, `failed`, `killed` or `signal`."""
    if status >= 0:
        return "failed" if status else "ended"
    return "killed" if status == -signal.SIGKILL else "signal"


def describe_status(status: int) -> str:
    """Return what a wait status says, for a person."""
    if status >= 0:
        return f"ended with status {status}"
    return describe_signal(-status)


def describe_signal(number: int) -> str:
    """Return what it says that a process died of this signal; the kernel sends SIGKILL for want of memory."""
    name = signal.strsignal(number) or "unknown"
    hint = describe_want(memory_limit()) if number == signal.SIGKILL else ""
    return f"was killed by signal {number} ({name}){hint}"
