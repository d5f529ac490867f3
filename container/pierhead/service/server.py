"""gunicorn as the master of the handler workers.

The master imports neither Flask, grpc nor the user's code: all of it is loaded in each worker, after the fork
and after gevent's patching. gunicorn writes nothing but its socket and unlinked files in the run folder.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from pierhead.control import Message, ServicePlan, WorkerGone, WorkerReady, send
from pierhead.errors import ControlError, UserCodeError
from pierhead.settings import Settings

__all__ = ["HandlerServer"]

log = logging.getLogger(__name__)

WORKER_CLASSES: Mapping[str, str] = {
    "gevent": "pierhead.service.draining.DrainingWorker",
    "gthread": "gthread",
    "sync": "sync",
}
GRACEFUL_SECONDS = 20
KEEPALIVE_SECONDS = 3600


class RootLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's log, written by the handlers of the root logger."""

    def setup(self, cfg: Any) -> None:
        """Take gunicorn's level, and leave the lines' form to the root logger."""
        super().setup(cfg)
        self.error_log.propagate = True


class HandlerServer(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The gunicorn application of one plan."""

    def __init__(self, plan: ServicePlan, settings: Settings, run_folder: Path) -> None:
        self._plan = plan
        self._settings = settings
        self._run_folder = run_folder
        self._failure = FirstFailure()
        super().__init__(prog="pierhead.service")

    def load_config(self) -> None:
        """Set gunicorn's settings; GUNICORN_CMD_ARGS comes last and wins."""
        options = gunicorn_options(self._plan, self._settings, self._run_folder)
        options["post_worker_init"] = lambda worker: self._report(WorkerReady(worker.pid))
        options["child_exit"] = lambda _, worker: self._report(WorkerGone(worker.pid))
        given = vars(self.cfg.parser().parse_args(self.cfg.get_cmd_args_from_env()))
        given.pop("args")
        options |= {name: value for name, value in given.items() if value is not None}
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Return the WSGI app; in a worker whose hooks cannot be loaded, end the whole of gunicorn."""
        try:
            return import_module("pierhead.service.worker").load_app(self._plan, self._settings)
        except UserCodeError as problem:
            if not self._failure.is_first():
                # gunicorn's master ends with a traceback of its own when a second worker cannot load either.
                sys.exit(0)
            log.error("%s", import_module("pierhead.service.user_code").explain_failure(problem))
            sys.exit(Arbiter.APP_LOAD_ERROR)

    def _report(self, message: Message) -> None:
        try:
            send(self._plan.control_socket, message)
        except ControlError as problem:
            log.warning("%s was not reported: %s", message, problem)


class FirstFailure:
    """One token for all workers: of several that fail alike, one says why."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.write(writer, b"1")
        os.close(writer)

    def is_first(self) -> bool:
        """Return whether no other worker has asked."""
        return os.read(self._reader, 1) != b""


def gunicorn_options(plan: ServicePlan, settings: Settings, run_folder: Path) -> dict[str, Any]:
    """Return gunicorn's settings by their names."""
    return {
        "bind": f"unix:{plan.socket}",
        # nginx's workers run as another user; the folder decides who may connect.
        "umask": 0,
        "workers": settings.gunicorn_workers,
        "worker_class": WORKER_CLASSES[settings.gunicorn_worker_class],
        "threads": settings.gunicorn_threads,
        "timeout": settings.gunicorn_timeout_seconds,
        "graceful_timeout": GRACEFUL_SECONDS,
        "keepalive": KEEPALIVE_SECONDS,
        "loglevel": settings.gunicorn_loglevel,
        "accesslog": None,
        "errorlog": None,
        "logger_class": RootLogger,
        "worker_tmp_dir": str(run_folder),
        "control_socket_disable": True,
        "proc_name": "pierhead-handler",
    }
