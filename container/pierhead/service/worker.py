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
from pierhead.errors import HookShapeError
from pierhead.logs import keep_own_loggers
from pierhead.service.app import Handler, Router, Service, create_app, create_models_app
from pierhead.service.backend import Backend
from pierhead.service.call import Call
from pierhead.service.context import Context, describe_request
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.hook_handlers import PairHandler, WholeHandler
from pierhead.service.hooks import HookPair, Hooks, ToolkitHooks, WholeHook, load_hooks
from pierhead.service.loaded_models import LoadedModels
from pierhead.service.metrics import TimedBackend, WorkerMetrics
from pierhead.service.no_model_servers import NoModelServers
from pierhead.service.tfs_backend import TfsBackend
from pierhead.service.toolkit.handler import ToolkitHandler
from pierhead.serving_stubs import ServingStubs, import_serving_stubs
from pierhead.settings import Settings

__all__ = ["load_app"]


def load_app(plan: ServicePlan, settings: Settings) -> Flask:
    """Return the app of a plan; raise UserCodeError where its hooks cannot be loaded."""
    if settings.gunicorn_worker_class == "gevent":
        # Once, after gevent's patching and before any channel: without it one call blocks all greenlets.
        init_gevent()
    stubs, metrics = import_serving_stubs(), WorkerMetrics()
    if plan.loaded is not None:
        app = create_models_app(settings, _loaded_models(plan, settings, stubs, metrics, plan.loaded).find)
    else:
        backend = _backend(plan, settings, stubs, metrics)
        app = create_app(plan, settings, backend, _load_handler(plan, settings, backend, metrics))
    app.wsgi_app = metrics.counted_app(app.wsgi_app)  # type: ignore[method-assign]
    return app


def _backend(
    plan: ServicePlan, settings: Settings, stubs: ServingStubs, metrics: WorkerMetrics
) -> TimedBackend:
    if not plan.servers:
        return TimedBackend(NoModelServers(), metrics)
    backend = TfsBackend(stubs, plan.servers, plan.models, multi_model=settings.multi_model)
    return TimedBackend(backend, metrics)


def _loaded_models(
    plan: ServicePlan, settings: Settings, stubs: ServingStubs, metrics: WorkerMetrics, folder: str
) -> LoadedModels:
    """Return the models of a multi-model endpoint, which share the hooks of this plan."""
    hooks = _load_hooks(plan, metrics)
    if isinstance(hooks, ToolkitHooks):
        raise HookShapeError(
            f"{Path(plan.hooks or '').name} is shared by models that come and go, and would hold them in a "
            "worker for ever: wanted is handler, or input_handler with output_handler"
        )

    def make(model: ServicePlan) -> Service:
        backend = _backend(model, settings, stubs, metrics)
        return Service(Router(model, settings, backend), _handler(hooks, settings, backend))

    return LoadedModels(Path(folder), make)


def _load_hooks(plan: ServicePlan, metrics: WorkerMetrics) -> Hooks | None:
    if plan.hooks is None or plan.code is None:
        return None
    # Byte code beside inference.py would outlive a replacement of the same size and second.
    sys.dont_write_bytecode = True
    file, code = Path(plan.hooks).absolute(), Path(plan.code).absolute()
    # Hooks open the files beside them by relative names.
    os.chdir(code)
    with keep_own_loggers():
        return metrics.timed_hooks(load_hooks(file, code))


def _handler(hooks: WholeHook | HookPair | None, settings: Settings, backend: Backend) -> Handler:
    if hooks is None:
        return DefaultHandler(backend, settings.default_accept, settings.max_decompressed_mb << 20)
    if isinstance(hooks, HookPair):
        return PairHandler(hooks, backend, multi_model=settings.multi_model)
    return WholeHandler(hooks)


def _load_handler(plan: ServicePlan, settings: Settings, backend: Backend, metrics: WorkerMetrics) -> Handler:
    hooks = _load_hooks(plan, metrics)
    if isinstance(hooks, ToolkitHooks):
        folder = str(Path(plan.code or "").absolute().parent)
        with keep_own_loggers():
            return ToolkitHandler.load(hooks, folder, _start_context(plan, settings, backend))
    return _handler(hooks, settings, backend)


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
