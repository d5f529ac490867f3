"""gunicorn as the master of the handler workers.

The master imports neither Flask, grpc nor the user's code: all of it is loaded in each worker, after the fork
and after gevent's patching. gunicorn writes nothing but its socket and unlinked files in the run folder.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from pierhead.control import Message, ServicePlan, StartFailed, WorkerGone, WorkerReady, send
from pierhead.errors import Code, ControlError, ServingError, UserCodeError
from pierhead.gunicorn_arguments import read_gunicorn_arguments
from pierhead.service.workers.arbiter import HandoverArbiter
from pierhead.settings import Settings

__all__ = ["HandlerServer"]

log = logging.getLogger(__name__)

WORKER_CLASSES: Mapping[str, str] = {
    "gevent": "pierhead.service.workers.gevent_worker.GreenletWorker",
    "gthread": "pierhead.service.workers.gthread_worker.PoolWorker",
    "sync": "pierhead.service.workers.sync_worker.SingleWorker",
}
GRACEFUL_SECONDS = 20
EXIT_SECONDS = 2
# A sign of life is given once a second, and looked for once a second.
BEAT_SECONDS = 2
LONGEST_HEADER = 1 << 16


class RootLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's log, written by the handler that its logger's parent has."""

    def setup(self, cfg: Any) -> None:
        """Take gunicorn's level, and leave the lines' form to `pierhead.logs`."""
        super().setup(cfg)
        self.error_log.propagate = True
        self.error_log.addFilter(_is_not_a_death)


class HandlerServer(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The gunicorn application of one plan."""

    def __init__(self, plan: ServicePlan, settings: Settings, run_folder: Path) -> None:
        self._plan = plan
        self._settings = settings
        self._run_folder = run_folder
        self._failure = FirstFailure()
        super().__init__(prog="pierhead.service")

    @property
    def silent_seconds(self) -> int:
        """How long a worker may give no sign of life."""
        return self._settings.gunicorn_timeout_seconds

    @property
    def request_seconds(self) -> int:
        """How long a request's work may take."""
        return self._settings.work_timeout_seconds

    def load_config(self) -> None:
        """Set gunicorn's settings; what GUNICORN_CMD_ARGS passes to it comes last and wins."""
        options = gunicorn_options(self._plan, self._settings, self._run_folder)
        options["post_worker_init"] = self._note_ready
        options["post_request"] = lambda worker, request: worker.end_request(request)
        options["worker_exit"] = lambda _, worker: _bound_exit(worker)
        options["child_exit"] = lambda _, worker: self._note_gone(worker)
        passed = read_gunicorn_arguments(self._settings.gunicorn_arguments or "").passed
        given = vars(self.cfg.parser().parse_args(list(passed)))
        given.pop("args")
        options |= {name: value for name, value in given.items() if value is not None}
        for name, value in options.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Run the master until it is told to end."""
        HandoverArbiter(self).run()

    def load(self) -> Any:
        """Return the WSGI app; in a worker whose hooks cannot be loaded, end the whole of gunicorn."""
        with uncollected():
            worker = import_module("pierhead.service.worker")
        try:
            return worker.load_app(self._plan, self._settings)
        except UserCodeError as problem:
            if not self._failure.is_first():
                # gunicorn's master ends with a traceback of its own when a second worker cannot load either.
                _leave(0)
            log.error("%s", import_module("pierhead.service.user_code").explain_failure(problem))
            self._report(StartFailed(self._plan.process, _code(problem), str(problem)))
            _leave(Arbiter.APP_LOAD_ERROR)

    def _note_ready(self, worker: Any) -> None:
        worker.become_ready()
        self._report(WorkerReady(worker.pid, self._plan.process))

    def _note_gone(self, worker: Any) -> None:
        if worker.aborted and worker.death == signal.SIGKILL:
            log.error(
                "worker %s was killed with its requests: it gave no sign of life for %s s, and did not let "
                "go when asked (SAGEMAKER_GUNICORN_TIMEOUT_SECONDS)",
                worker.pid,
                self.silent_seconds,
            )
            worker.death = 0
        if worker.death == signal.SIGALRM:
            log.warning("worker %s ended before its threads, %s s after all else", worker.pid, EXIT_SECONDS)
            worker.death = 0
        if worker.death == signal.SIGTERM:
            # The master's own word to one that still loads.
            worker.death = 0
        self._report(WorkerGone(worker.pid, worker.death, self._plan.process))

    def _report(self, message: Message) -> None:
        try:
            send(self._plan.control_socket, message)
        except ControlError as problem:
            log.warning("%s was not reported: %s", message, problem)


def _is_not_a_death(record: logging.LogRecord) -> bool:
    """Leave out the line about a worker that was killed: the supervisor has a fuller one."""
    return not str(record.msg).startswith("Worker (pid:%s) was sent")


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector still: it takes a tenth of an import's time, and finds nothing in it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _code(problem: UserCodeError) -> Code:
    """Return the code of a failure to load hooks: memory may have been lacking."""
    match problem.__cause__:
        case MemoryError() | OSError(errno=errno.ENOMEM) | ServingError(code=Code.RESOURCE_EXHAUSTED):
            return Code.RESOURCE_EXHAUSTED
    return Code.INTERNAL


class FirstFailure:
    """One token for all workers: of several that fail alike, one says why."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.write(writer, b"1")
        os.close(writer)

    def is_first(self) -> bool:
        """Return whether no other worker has asked."""
        return os.read(self._reader, 1) != b""


def _leave(status: int) -> NoReturn:
    """End a worker whose hooks cannot be loaded, at once, so that the master learns its status.

    Python would wait for threads of the user's code, and what bounds that puts a signal in the status's
    place: the master would start one worker after the other.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _bound_exit(worker: Any) -> None:
    """End a worker soon, also where threads of the user's code go on; Python would wait for them."""
    if os.getpid() != worker.pid:
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(EXIT_SECONDS)


def gunicorn_options(plan: ServicePlan, settings: Settings, run_folder: Path) -> dict[str, Any]:
    """Return gunicorn's settings by their names."""
    return {
        "bind": f"unix:{plan.socket}",
        # nginx's workers run as another user; the folder decides who may connect.
        "umask": 0,
        "workers": settings.gunicorn_workers,
        "worker_class": WORKER_CLASSES[settings.gunicorn_worker_class],
        "threads": settings.gunicorn_threads,
        "timeout": settings.gunicorn_timeout_seconds + BEAT_SECONDS,
        "graceful_timeout": GRACEFUL_SECONDS,
        # One request a connection: no request is ever on its way to a worker that is about to close it, and
        # each goes to a worker that has time for it. It costs a small request about a tenth of its time.
        "keepalive": 0,
        # What nginx lets through is not too large for us.
        "limit_request_line": 0,
        "limit_request_fields": 0,
        "limit_request_field_size": LONGEST_HEADER,
        # Clients may send X-Forwarded-* as they like: nothing here follows from it, also no refusal.
        "secure_scheme_headers": {},
        "loglevel": settings.gunicorn_loglevel,
        "accesslog": None,
        "errorlog": None,
        "logger_class": RootLogger,
        "worker_tmp_dir": str(run_folder),
        "control_socket_disable": True,
        "proc_name": "pierhead-handler",
    }
