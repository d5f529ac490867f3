from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.logs import configure_logging
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.grpc_server import GrpcAddress, GrpcServer
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries
from pierhead.serving_stubs import ServingStubs

REQUESTS, WARMUPS = "/tensorflow/serving/request_count", "/tensorflow/serving/model_warmup_records_read"


def increases(
    stubs: ServingStubs, metrics: Metrics | None, reload: Callable[[Any], None], *names: str
) -> list[tuple[str, int]]:
    """Return the metrics of a reload's response."""
    plane = DataPlane(Registry(FakePlatform(), Retries()), metrics=metrics)
    server = GrpcServer(plane, ProtobufCodec(), threads=1, reload=reload)
    request = stubs.model_management.ReloadConfigRequest(metric_names=names)
    context: Any = None
    response = server.handle_reload_config(request, context)
    assert all(metric.HasField("int64_value_increase") for metric in response.metric)
    return [(metric.name, metric.int64_value_increase) for metric in response.metric]


def test_reload_tells_what_it_added_to_the_counters_asked_for(stubs: ServingStubs) -> None:
    metrics = Metrics()
    metrics.model_warmup_records_read.add("/m/1", "OK", amount=5)

    def warm_up(_: Any) -> None:
        metrics.model_warmup_records_read.add("/m/1", "OK", amount=2)
        metrics.model_warmup_records_read.add("/m/2", "DATA_LOSS", amount=1)

    assert [(WARMUPS, 3), (REQUESTS, 0)] == increases(stubs, metrics, warm_up, WARMUPS, REQUESTS, WARMUPS)


def test_reload_without_names_tells_of_no_counter(stubs: ServingStubs) -> None:
    assert not increases(stubs, Metrics(), lambda _: None)


def test_nothing_is_counted_without_monitoring(stubs: ServingStubs) -> None:
    assert [(WARMUPS, 0)] == increases(stubs, None, lambda _: None, WARMUPS)


def test_bug_is_logged_with_its_request_and_tells_the_caller_nothing(
    stubs: ServingStubs,
    free_ports: Callable[[int], int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    configure_logging("model-server-1")

    def broken(_: Any) -> None:
        raise ZeroDivisionError("inside")

    plane = DataPlane(Registry(FakePlatform(), Retries()))
    server = GrpcServer(plane, ProtobufCodec(), threads=1, reload=broken)
    port = free_ports(1)
    server.start(GrpcAddress(port, "127.0.0.1"))
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = stubs.ModelServiceStub(channel).HandleReloadConfigRequest
            with pytest.raises(grpc.RpcError) as refusal:
                call(
                    stubs.model_management.ReloadConfigRequest(),
                    timeout=20,
                    metadata=(("x-request-id", "0a1b"),),
                )
    finally:
        server.stop(0)
        root.handlers[:] = before[0]
        root.setLevel(before[1])

    assert refusal.value.code() is grpc.StatusCode.INTERNAL
    assert refusal.value.details() == "the model server failed; its log says why"
    log = capfd.readouterr().err
    assert "ERROR model-server-1 [0a1b]: a call could not be answered" in log
    assert "ZeroDivisionError: inside" in log
