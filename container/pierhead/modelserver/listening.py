"""The sockets of the HTTP door: where it listens, and what there is to know of the client's end.

A unix socket is a file: it takes the place of an older one in one step, so that nobody who connects meanwhile
finds none, and goes when its server does, unless a successor has taken its place.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from pathlib import Path

__all__ = ["BACKLOG", "SocketFile", "is_refusing", "listening_port", "send_at_once"]

BACKLOG = 1024
TCP_CLOSED = 7
EVERYBODY = 0o666


def listening_port(bind_address: str, port: int) -> socket.socket:
    """Listen at an address, on all when it is empty; raise OSError where that is impossible."""
    if bind_address:
        family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
        return socket.create_server((bind_address, port), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)


class SocketFile:
    """A unix socket that everybody may connect to."""

    def __init__(self, path: str) -> None:
        """Listen at a path; raise OSError where that is impossible."""
        self._path = Path(path)
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        try:
            self.listener.bind(str(fresh))
            fresh.chmod(EVERYBODY)
            self.listener.listen(BACKLOG)
            self._inode = fresh.stat().st_ino
            fresh.replace(self._path)
        except OSError:
            self.listener.close()
            fresh.unlink(missing_ok=True)
            raise

    def remove(self) -> None:
        """Remove the file, if it is still this socket's."""
        with suppress(OSError):
            if os.lstat(self._path).st_ino == self._inode:
                self._path.unlink()


def send_at_once(connection: socket.socket) -> None:
    """Let small answers not wait 40 ms for an acknowledgement.

    asyncio does this only for sockets that it made itself.
    """
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def is_refusing(connection: socket.socket) -> bool:
    """Return whether the client's end takes no more bytes, so that nobody reads an answer."""
    try:
        if connection.family != socket.AF_UNIX:
            return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSED)
        poll = select.poll()
        poll.register(connection, 0)
        return any(events & select.POLLHUP for _, events in poll.poll(0))
    except (OSError, ValueError):
        return True
