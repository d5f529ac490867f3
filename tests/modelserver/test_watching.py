from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.grpc_server import GrpcAddress, GrpcServer
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries

SERVING, NOT_SERVING, SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"
MORE_THAN_THREADS = 20
SECONDS = 20


@contextmanager
def health_server(port: int) -> Iterator[tuple[GrpcServer, Any, Any]]:
    """Yield a server with its health service, and the methods Check and Watch of a client."""
    plane = DataPlane(Registry(FakePlatform(), Retries()))
    server = GrpcServer(plane, ProtobufCodec(), threads=1, health=True)
    server.start(GrpcAddress(port, "127.0.0.1"))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        service = "/grpc.health.v1.Health"
        yield server, channel.unary_unary(f"{service}/Check"), channel.unary_stream(f"{service}/Watch")
    server.stop(SECONDS)


def test_watchers_hold_no_thread_and_are_told_of_the_end(free_ports: Callable[[int], int]) -> None:
    with health_server(free_ports(1)) as (server, check, watch):
        watchers = [watch(b"", timeout=SECONDS) for _ in range(MORE_THAN_THREADS)]
        assert [next(watcher) for watcher in watchers] == [SERVING] * MORE_THAN_THREADS
        watchers.pop().cancel()
        assert check(b"", timeout=SECONDS) == SERVING

        server.stop(SECONDS)
        assert [list(watcher) for watcher in watchers] == [[NOT_SERVING]] * (MORE_THAN_THREADS - 1)


def test_watcher_of_an_unknown_service_is_told_so_and_stays(free_ports: Callable[[int], int]) -> None:
    with health_server(free_ports(1)) as (_, _check, watch):
        watcher = watch(b"\x0a\x01z", timeout=SECONDS)

        assert next(watcher) == SERVICE_UNKNOWN
        assert watcher.is_active()
        watcher.cancel()
