"""What happens in a worker process before it takes requests; nothing here is imported by the master."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from flask import Flask
from grpc.experimental.gevent import init_gevent
from werkzeug.datastructures import Headers

from pierhead.control import ServicePlan
from pierhead.logs import keep_own_loggers
from pierhead.service.app import Handler, create_app
from pierhead.service.backend import Backend
from pierhead.service.call import Call
from pierhead.service.context import Context, describe_request
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.hook_handlers import PairHandler, WholeHandler
from pierhead.service.hooks import HookPair, ToolkitHooks, load_hooks
from pierhead.service.metrics import TimedBackend, WorkerMetrics
from pierhead.service.no_model_servers import NoModelServers
from pierhead.service.tfs_backend import TfsBackend
from pierhead.service.toolkit.handler import ToolkitHandler
from pierhead.serving_stubs import import_serving_stubs
from pierhead.settings import Settings

__all__ = ["load_app"]


def load_app(plan: ServicePlan, settings: Settings) -> Flask:
    """Return the app of a plan; raise UserCodeError where its hooks cannot be loaded."""
    if settings.gunicorn_worker_class == "gevent":
        # Once, after gevent's patching and before any channel: without it one call blocks all greenlets.
        init_gevent()
    stubs = import_serving_stubs()
    backend = TfsBackend(stubs, plan.servers, plan.models) if plan.servers else NoModelServers()
    metrics = WorkerMetrics()
    timed = TimedBackend(backend, metrics)
    app = create_app(plan, settings, timed, _load_handler(plan, settings, timed, metrics))
    app.wsgi_app = metrics.counted_app(app.wsgi_app)  # type: ignore[method-assign]
    return app


def _load_handler(plan: ServicePlan, settings: Settings, backend: Backend, metrics: WorkerMetrics) -> Handler:
    if plan.hooks is None or plan.code is None:
        return DefaultHandler(backend, settings.default_accept, settings.max_decompressed_mb << 20)
    # Byte code beside inference.py would outlive a replacement of the same size and second.
    sys.dont_write_bytecode = True
    file, code = Path(plan.hooks).absolute(), Path(plan.code).absolute()
    # Hooks open the files beside them by relative names.
    os.chdir(code)
    with keep_own_loggers():
        hooks = metrics.timed_hooks(load_hooks(file, code))
        if isinstance(hooks, ToolkitHooks):
            return ToolkitHandler.load(hooks, str(code.parent), _start_context(plan, settings, backend))
    return PairHandler(hooks, backend) if isinstance(hooks, HookPair) else WholeHandler(hooks)


def _start_context(plan: ServicePlan, settings: Settings, backend: Backend) -> Context:
    """Return the context of a request for the default model that has no headers."""
    server, timeout = backend.next_server(), float(settings.work_timeout_seconds)
    call = Call(plan.default_model, None, "predict", server, timeout)
    return describe_request(
        call,
        Headers(),
        served_version=backend.served_version(call.model, None),
        channel=backend.channel(server),
        signature=partial(backend.signature, call),
        default_accept=settings.default_accept,
        max_decompressed_bytes=settings.max_decompressed_mb << 20,
    )
