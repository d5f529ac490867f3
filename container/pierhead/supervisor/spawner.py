"""Starts, signals and reaps processes for real. Only the supervisor's main loop calls it.

Most children are spawned; embedded model servers are forked by the nursery, which has TensorFlow in memory
already. The nursery forks twice, and since the supervisor is a child subreaper (or PID 1) the model server
becomes its own child: its end is seen, and it outlives the nursery.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pierhead import control
from pierhead.errors import ControlError
from pierhead.supervisor.events import FromNursery
from pierhead.supervisor.outputs import Outputs
from pierhead.supervisor.process import ProcessSpec

__all__ = ["NURSERY", "Spawner", "become_subreaper"]

NURSERY = "nursery"
PR_SET_CHILD_SUBREAPER = 36
# Ignored here, by us and by Python; a child would inherit that.
IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


class Spawner:
    """The operating system as the processes of the stack need it."""

    def __init__(
        self, environ: Mapping[str, str], report: Callable[[FromNursery], None], outputs: Outputs
    ) -> None:
        self._environ = dict(environ)
        self._report = report
        self._outputs = outputs
        self._nursery: socket.socket | None = None

    def spawn(self, spec: ProcessSpec) -> int | None:
        """Start the process as the leader of a process group; None: the nursery will report its pid."""
        if spec.forked:
            self._ask_nursery(control.ForkServer(spec.name, spec.command))
            return None
        if spec.name == NURSERY:
            return self._spawn_nursery(spec)
        return self._spawn_child(spec.command, spec)

    def kill_group(self, pid: int, number: int) -> None:
        """Send a signal to the group that `pid` leads, if there is one."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)

    def kill(self, pid: int, number: int) -> None:
        """Send a signal to one process, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def wait_until_gone(self, leaders: Sequence[int], seconds: float, poll_seconds: float) -> bool:
        """Wait until the groups that these led have no member left; return whether that is so.

        Members that are not our children are reaped by others, or by the loop as strangers.
        """
        deadline = time.monotonic() + seconds
        while any(_is_there(leader) for leader in leaders):
            if time.monotonic() >= deadline:
                return False
            time.sleep(poll_seconds)
        return True

    def reap(self) -> Iterator[tuple[int, int]]:
        """Yield pid and status (negative: the signal that killed it) of each child that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Let go of the nursery."""
        if self._nursery is not None:
            with contextlib.suppress(OSError):
                self._nursery.shutdown(socket.SHUT_RDWR)
            self._nursery.close()

    def _spawn_child(self, command: tuple[str, ...], spec: ProcessSpec) -> int:
        environ = {**self._environ, **spec.environment}
        with self._outputs.pipe(spec) as actions:
            return os.posix_spawn(
                command[0],
                command,
                environ,
                file_actions=actions,
                setpgroup=0,
                setsigmask=(),
                setsigdef=IGNORED_SIGNALS,
            )

    def _spawn_nursery(self, spec: ProcessSpec) -> int:
        self.close()
        self._nursery, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            pid = self._spawn_child((*spec.command, f"--nursery={theirs.fileno()}"), spec)
        threading.Thread(target=self._listen, args=(self._nursery, pid), daemon=True).start()
        return pid

    def _listen(self, connection: socket.socket, pid: int) -> None:
        with contextlib.suppress(OSError, ControlError), connection.makefile("rb") as lines:
            for line in lines:
                self._report(FromNursery(pid, control.decode(line)))

    def _ask_nursery(self, message: control.ForkServer) -> None:
        """Ask; a nursery that is gone is not an error here, since its end is reported too."""
        if self._nursery is not None:
            with contextlib.suppress(OSError):
                self._nursery.sendall(control.encode(message))


def _is_there(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def become_subreaper() -> bool:
    """Make orphans below this process its own children; return whether the system can do that."""
    if os.getpid() == 1:
        return True
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
