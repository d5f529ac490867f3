"""What happens in a worker process before it takes requests; nothing here is imported by the master."""

from __future__ import annotations

import sys
from pathlib import Path

from flask import Flask
from grpc.experimental.gevent import init_gevent

from pierhead.control import ServicePlan
from pierhead.service.app import Handler, create_app
from pierhead.service.backend import Backend
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.hook_handlers import PairHandler, WholeHandler
from pierhead.service.hooks import HookPair, load_hooks
from pierhead.service.tfs_backend import TfsBackend
from pierhead.serving_stubs import import_serving_stubs
from pierhead.settings import Settings

__all__ = ["load_app"]


def load_app(plan: ServicePlan, settings: Settings) -> Flask:
    """Return the app of a plan; raise UserCodeError where its hooks cannot be loaded."""
    if settings.gunicorn_worker_class == "gevent":
        # Once, after gevent's patching and before any channel: without it one call blocks all greenlets.
        init_gevent()
    backend = TfsBackend(import_serving_stubs(), plan.servers, plan.models)
    return create_app(plan, settings, backend, _load_handler(plan, settings, backend))


def _load_handler(plan: ServicePlan, settings: Settings, backend: Backend) -> Handler:
    if plan.hooks is None or plan.code is None:
        return DefaultHandler(backend, settings.default_accept)
    # Byte code beside inference.py would outlive a replacement of the same size and second.
    sys.dont_write_bytecode = True
    hooks = load_hooks(Path(plan.hooks), Path(plan.code))
    return PairHandler(hooks, backend) if isinstance(hooks, HookPair) else WholeHandler(hooks)
