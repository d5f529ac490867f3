"""Hands out the ports of model servers: one (gRPC, REST) pair each, free at the moment of asking."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator

from pierhead.control import ServerAddress
from pierhead.errors import ConfigError
from pierhead.settings import PortRange

__all__ = ["allocate_ports", "is_free"]

FIRST_GRPC_PORT = 9000
FIRST_REST_PORT = 8501
LAST_PORT = 65535


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def allocate_ports(
    count: int, ports: PortRange | None, is_free: Callable[[int], bool] = is_free
) -> tuple[ServerAddress, ...]:
    """Return the addresses of `count` model servers.

    Within a range, pairs are taken upwards from its low end, and ports in use are passed over; without one,
    gRPC starts at 9000 and REST at 8501. Raises ConfigError where the range has not enough free ports.
    Source: the TensorFlow Serving image's contract, Configuration.
    """
    if ports is None:
        return tuple(itertools.islice(_addresses(is_free), count))
    free = [port for port in range(ports.low, ports.high + 1) if is_free(port)]
    if len(free) < 2 * count:
        raise ConfigError(
            [f"SAGEMAKER_SAFE_PORT_RANGE='{ports}': {2 * count} ports are needed, {len(free)} are free"]
        )
    return tuple(ServerAddress(free[2 * i], free[2 * i + 1]) for i in range(count))


def _addresses(is_free: Callable[[int], bool]) -> Iterator[ServerAddress]:
    grpc_port, rest_port = FIRST_GRPC_PORT - 1, FIRST_REST_PORT - 1
    taken: set[int] = set()
    while True:
        grpc_port = _next_free(grpc_port, taken, is_free)
        rest_port = _next_free(rest_port, taken, is_free)
        yield ServerAddress(grpc_port, rest_port)


def _next_free(port: int, taken: set[int], is_free: Callable[[int], bool]) -> int:
    for candidate in range(port + 1, LAST_PORT + 1):
        if candidate not in taken and is_free(candidate):
            taken.add(candidate)
            return candidate
    raise ConfigError([f"no port above {port} is free for a model server"])
