"""The class gthread: each request has one of the worker's threads."""

from __future__ import annotations

from typing import Any

from gunicorn.workers.gthread import ThreadWorker

from pierhead.service.workers.handler_worker import HandlerWorker

__all__ = ["PoolWorker"]


class PoolWorker(HandlerWorker, ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's worker with threads, which takes no more requests than it has threads.

    gunicorn's own takes a thousand: they wait for its threads while other workers are idle, and are lost with
    it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.worker_connections = self.cfg.threads

    def notify(self) -> None:
        """Give a sign of life; ask for a successor once no thread is left, because none can be ended."""
        super().notify()
        if self.stuck_requests() >= self.cfg.threads:
            self.retire(f"each of its threads has a request of more than {self.app.request_seconds} s")
