"""The class gevent: each request is a greenlet, and all of a worker share one thread."""

from __future__ import annotations

from gunicorn.workers.ggevent import GeventWorker

from pierhead.service.workers.handler_worker import HandlerWorker

__all__ = ["GreenletWorker"]


class GreenletWorker(HandlerWorker, GeventWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's gevent worker; its timeout is how long a request may keep all others from running."""
