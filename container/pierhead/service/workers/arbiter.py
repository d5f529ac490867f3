"""gunicorn's master, with workers that are replaced before they go.

gunicorn starts a worker's successor when the worker has ended, and nobody takes requests until the successor
has imported the hooks. Here a worker that is to be recycled goes on until its successor is ready. One worker
is replaced at a time, so that memory is needed for one more worker, not for twice as many.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from gunicorn.arbiter import Arbiter

from pierhead.service.workers.stages import Stage

__all__ = ["HandoverArbiter"]


class HandoverArbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """A master that starts successors in time, and knows which signal a worker died of."""

    def manage_workers(self) -> None:
        """Start the workers that are missing, and tell those to end that are too many."""
        staying = self._workers(Stage.BOOTING, Stage.READY, Stage.RETIRING)
        retiring = self._workers(Stage.RETIRING)
        wanted = self.num_workers + (1 if retiring else 0)
        for _ in range(wanted - len(staying)):
            self.spawn_worker()
        if len(staying) >= wanted and retiring and not self._workers(Stage.BOOTING):
            self._send_away(retiring[0])
        for worker in staying[: max(0, len(staying) - wanted)]:
            self._send_away(worker)

    def spawn_worker(self) -> None:
        """Start a worker; it inherits the master's handlers, so SIGTERM has to wait until it has its own."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            super().spawn_worker()
        except KeyboardInterrupt:
            if os.getpid() == self.pid:
                raise
            # A worker's own would have this copy of the master stop, and take the socket away with it.
            sys.exit(1)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _workers(self, *stages: Stage) -> list[Any]:
        """Return the workers at these stages, the oldest first."""
        workers = sorted(self.WORKERS.values(), key=lambda worker: worker.age)
        return [worker for worker in workers if worker.stage.value in stages]

    def _send_away(self, worker: Any) -> None:
        worker.stage.move_to(Stage.LEAVING)
        self.kill_worker(worker.pid, signal.SIGTERM)

    def murder_workers(self) -> None:
        """Ask workers without a sign of life to end what they do; kill those that do not heed it."""
        for worker in self.WORKERS.values():
            # It was asked, heeded that, and may be asked again.
            worker.aborted = worker.aborted and self._is_silent(worker)
        super().murder_workers()

    def _is_silent(self, worker: Any) -> bool:
        return bool(time.monotonic() - worker.tmp.last_update() > self.timeout)

    def reap_workers(self) -> None:
        """Note what each worker died of before gunicorn forgets it."""
        for pid, worker in self.WORKERS.items():
            worker.death = _deadly_signal(pid)
        super().reap_workers()


def _deadly_signal(pid: int) -> int:
    """Return the signal that has ended a child which nobody has waited for yet; 0 where none has."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return ended.si_status if ended and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED) else 0
