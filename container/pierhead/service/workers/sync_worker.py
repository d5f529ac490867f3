"""The class sync: one request at a time, in the worker's only thread."""

from __future__ import annotations

from gunicorn.workers.sync import SyncWorker

from pierhead.service.workers.handler_worker import HandlerWorker

__all__ = ["SingleWorker"]


class SingleWorker(HandlerWorker, SyncWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's plain worker; its timeout is how long one request may take."""
