"""A gevent worker that ends when its requests have: idle keep-alive connections do not hold it back.

gunicorn's own worker waits for them until the graceful timeout, also when a worker is recycled, and for that
long nobody takes requests.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gevent  # type: ignore[import-untyped]
from gunicorn.workers.ggevent import GeventWorker

__all__ = ["DrainingWorker"]


@dataclass
class Connection:
    """A client's connection; `wait` is the limit of its wait for a next request, None while it has one."""

    client: socket.socket
    wait: gevent.Timeout | None = None
    is_new: bool = True

    def is_idle(self) -> bool:
        """Return whether it can be closed without loss: it has been answered, and nothing has come since."""
        return self.wait is not None and not self.is_new and not self._has_data()

    def _has_data(self) -> bool:
        arrivals = select.poll()
        arrivals.register(self.client, select.POLLIN)
        return bool(arrivals.poll(0))


class DrainingWorker(GeventWorker):  # type: ignore[misc]  # gunicorn has no types
    """Closes the connections that wait for a next request once the worker is to end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections: dict[gevent.Greenlet, Connection] = {}

    def handle(self, listener: Any, client: socket.socket, addr: Any) -> None:
        """Serve one connection, in a greenlet of its own."""
        greenlet = gevent.getcurrent()
        self._connections[greenlet] = Connection(client)
        try:
            super().handle(listener, client, addr)
        finally:
            del self._connections[greenlet]

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """Limit the wait for a connection's next request; its first is waited for in any case."""
        connection = self._connections[gevent.getcurrent()]
        seconds = self.cfg.keepalive if self.alive or connection.is_new else 0
        with gevent.Timeout(seconds, False) as connection.wait:
            yield
        connection.wait, connection.is_new = None, False

    def notify(self) -> None:
        """Tell the master that the worker lives; gunicorn calls this every second, also while it ends."""
        super().notify()
        if not self.alive:
            for greenlet, connection in list(self._connections.items()):
                if connection.is_idle():
                    greenlet.kill(connection.wait, block=False)
