from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.modelserver.fake_profiler import FakeProfiler
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.grpc_server import GrpcAddress, GrpcServer
from pierhead.modelserver.profiler import ProfilerService
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries
from pierhead.modelserver.surface import GRPC_METHODS, REST_ROUTES, Offer, Offered
from pierhead.serving_stubs import ServingStubs


@pytest.fixture(scope="module")
def channel(free_ports: Callable[[int], int]) -> Iterator[grpc.Channel]:
    port = free_ports(1)
    registry = Registry(FakePlatform(), Retries())
    registry.load("half", 1, Path("/half/1"))
    profiler = FakeProfiler()
    server = GrpcServer(
        DataPlane(registry),
        ProtobufCodec(),
        threads=1,
        reload=lambda _: None,
        health=True,
        profiler=ProfilerService(profiler.start),
    )
    server.start(GrpcAddress(port, "127.0.0.1"))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(0)
    profiler.stop()


@pytest.mark.parametrize("offer", GRPC_METHODS, ids=lambda offer: offer.name)
def test_method_is_there_as_the_table_says(channel: grpc.Channel, offer: Offer) -> None:
    is_stream = offer.name.endswith("/Watch")
    method: Any = (channel.unary_stream if is_stream else channel.unary_unary)(f"/{offer.name}")
    is_there = True
    try:
        answer = method(b"", timeout=10)
        if is_stream:
            next(answer)
            answer.cancel()
    except grpc.RpcError as problem:
        is_there = problem.code() is not grpc.StatusCode.UNIMPLEMENTED

    assert is_there == (offer.offered is not Offered.ABSENT and "UNIMPLEMENTED" not in offer.remark)


def test_every_method_of_the_stubs_is_listed(stubs: ServingStubs) -> None:
    listed = {offer.name for offer in GRPC_METHODS}
    services = {
        "tensorflow.serving.PredictionService": stubs.PredictionServiceServicer,
        "tensorflow.serving.ModelService": stubs.ModelServiceServicer,
    }

    for service, servicer in services.items():
        methods = {f"{service}/{name}" for name in vars(servicer) if not name.startswith("_")}
        assert methods
        assert methods <= listed


def test_what_is_not_the_same_says_why() -> None:
    assert all(offer.remark for offer in (*REST_ROUTES, *GRPC_METHODS) if offer.offered is not Offered.SAME)
