"""Hands out the ports of model servers: one (gRPC, REST) pair each, free at the moment of asking.

A port that was given back rests: for a while it is handed out only for want of others, so that a new server
does not meet the connections of the one before it.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from pierhead.control import ServerAddress
from pierhead.errors import Code, ConfigError, ServingError
from pierhead.settings import PortRange

__all__ = ["PortPool", "allocate_ports", "is_free"]

FIRST_GRPC_PORT = 9000
FIRST_REST_PORT = 8501
LAST_PORT = 65535
REST_SECONDS = 120.0


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
    """Return the addresses of `count` model servers, for as long as the stack runs.

    Raises ConfigError where the range has not enough free ports.
    """
    try:
        return PortPool(ports, is_free).take(count)
    except ServingError as problem:
        raise ConfigError([problem.message]) from problem


class PortPool:
    """The ports that model servers may have; several threads may take and give back.

    Within a range, pairs are taken upwards from its low end, and ports in use are passed over; without one,
    gRPC starts at 9000 and REST at 8501. Source: the TensorFlow Serving image's contract, Configuration.
    """

    def __init__(
        self,
        ports: PortRange | None,
        is_free: Callable[[int], bool] = is_free,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._range = ports
        self._is_free = is_free
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._given_back: dict[int, float] = {}  # the time of each, in the order of these

    def take(self, count: int) -> tuple[ServerAddress, ...]:
        """Return the addresses of `count` model servers, which are theirs until they are given back.

        Raises ServingError (RESOURCE_EXHAUSTED), and takes nothing, where not enough ports are free.
        """
        with self._lock:
            addresses = tuple(itertools.islice(self._pairs(), count))
            if len(addresses) < count:
                raise ServingError(Code.RESOURCE_EXHAUSTED, self._shortage(count))
            self._taken.update(_ports_of(addresses))
            for port in _ports_of(addresses):
                self._given_back.pop(port, None)
        return addresses

    def give_back(self, addresses: Iterable[ServerAddress]) -> None:
        """Let others have the ports of servers that are gone."""
        with self._lock:
            for port in _ports_of(addresses):
                if port in self._taken:
                    self._taken.remove(port)
                    self._given_back[port] = self._clock()

    def _pairs(self) -> Iterator[ServerAddress]:
        passed: set[int] = set()
        if self._range is not None:
            free = self._free(range(self._range.low, self._range.high + 1), passed)
            return map(ServerAddress, free, free)
        grpc_ports = self._free(range(FIRST_GRPC_PORT, LAST_PORT + 1), passed)
        rest_ports = self._free(range(FIRST_REST_PORT, LAST_PORT + 1), passed)
        return map(ServerAddress, grpc_ports, rest_ports)

    def _free(self, ports: range, passed: set[int]) -> Iterator[int]:
        """Yield the free ones of some ports, each once, and add them to those that are passed by."""
        for port in self._candidates(ports):
            if port not in passed and self._is_free(port):
                passed.add(port)
                yield port

    def _candidates(self, ports: range) -> Iterator[int]:
        """Yield the ports no server has, upwards; those that rest come last, the longest rested first."""
        now = self._clock()
        resting = [port for port, since in self._given_back.items() if now - since < REST_SECONDS]
        unavailable = self._taken.union(resting)
        yield from (port for port in ports if port not in unavailable)
        yield from (port for port in resting if port in ports)

    def _shortage(self, count: int) -> str:
        if self._range is None:
            return f"no two ports above {FIRST_REST_PORT - 1} are free for each of {count} model servers"
        free = sum(1 for _ in self._free(range(self._range.low, self._range.high + 1), set()))
        held = f"; models hold {len(self._taken)}" if self._taken else ""
        return (
            f"SAGEMAKER_SAFE_PORT_RANGE='{self._range}': {2 * count} ports are needed, {free} are free{held}"
        )


def _ports_of(addresses: Iterable[ServerAddress]) -> list[int]:
    return [port for each in addresses for port in (each.grpc_port, each.rest_port)]
