"""Ports for a container: whether one is free, and a range of them for its model servers."""

from __future__ import annotations

import errno
import random
import socket
from dataclasses import dataclass

from pierhead.errors import StartError

__all__ = ["PortRange", "free_range", "require_free_port"]

# Below the ports that the kernel hands to outgoing connections, which could take one of the range meanwhile.
LOWEST, HIGHEST = 20_000, 32_000
ATTEMPTS = 200


@dataclass(frozen=True)
class PortRange:
    """An inclusive range: pairs of a gRPC and a REST port, one for each model server."""

    low: int
    high: int

    @property
    def first_rest_port(self) -> int:
        """The first model server's REST port."""
        return self.low + 1

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


def free_range(count: int) -> PortRange:
    """Return `count` consecutive ports that are free on loopback, or raise StartError."""
    for _ in range(ATTEMPTS):
        # A random place keeps hosts that start at the same moment apart.
        low = random.randrange(LOWEST, HIGHEST - count)  # noqa: S311 - no secret
        if all(_bind_error("127.0.0.1", port) is None for port in range(low, low + count)):
            return PortRange(low, low + count - 1)
    raise StartError(f"no {count} consecutive free ports were found between {LOWEST} and {HIGHEST}")


def require_free_port(port: int) -> None:
    """Raise StartError, with a sentence, where the port cannot be listened on."""
    error = _bind_error("", port)
    if error is None:
        return
    if error.errno == errno.EADDRINUSE:
        raise StartError(f"port {port} is in use by another program; choose another with --port")
    raise StartError(f"port {port} cannot be listened on: {error.strerror}; choose another with --port")


def _bind_error(host: str, port: int) -> OSError | None:
    with socket.socket() as listener:
        # As nginx does: connections that have just ended do not hold the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            return error
    return None
