"""What long runs, impatient clients and broken processes may cost others: nothing."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from tests.modelserver.fake_runtime import FakePlatform
from tests.modelserver.running_server import RunningServer, running_server

from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.grpc_server import GrpcAddress, GrpcServer
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import write_tensor

FOREVER = 2_000_000_000
THREADS = 3
ASKED = 40
SECONDS = 30
QUICK_SECONDS = 0.05


@pytest.fixture(scope="module")
def small_server(half_model: Path, free_ports: Callable[[int], int]) -> Iterator[RunningServer]:
    """Return a server with few threads; what runs in it for ever ends with it."""
    threads = [f"--rest_api_num_threads={THREADS}", f"--grpc_max_threads={THREADS}"]
    flags = [*threads, "--rest_api_timeout_in_ms=0", "--enable_grpc_healthcheck_service=true"]
    with running_server(free_ports(2), half_model, *flags) as running:
        yield running
        running.process.kill()
        running.process.communicate(timeout=SECONDS)


@pytest.fixture
def channel(small_server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{small_server.grpc_port}") as channel:
        yield channel


def half_request(stubs: ServingStubs, value: float) -> Any:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    write_tensor(np.array([value], np.float32), request.inputs["x"])
    return request


def count_request(stubs: ServingStubs, limit: int) -> Any:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = "count"
    write_tensor(np.array(limit, np.int32), request.inputs["n"])
    return request


def count(server: RunningServer, limit: int, seconds: float = SECONDS) -> requests.Response:
    body = json.dumps({"signature_name": "count", "inputs": limit})
    return requests.post(server.url("/v1/models/half:predict"), body, timeout=seconds)


def slowest(ask: Callable[[], object]) -> float:
    """Return the seconds that all asks but the two slowest, which other processes disturb, stay below."""
    durations = []
    for _ in range(ASKED):
        start = time.monotonic()
        ask()
        durations.append(time.monotonic() - start)
    return sorted(durations)[-3]


@contextmanager
def busy(server: RunningServer, channel: grpc.Channel, stubs: ServingStubs) -> Iterator[None]:
    """Fill every thread of both doors with runs that do not end, and let more wait."""
    predict = stubs.PredictionServiceStub(channel).Predict
    body = json.dumps({"signature_name": "count", "inputs": FOREVER})
    with ExitStack() as stack:
        for _ in range(2 * THREADS):
            stack.callback(predict.future(count_request(stubs, FOREVER)).cancel)
            connection = HTTPConnection("127.0.0.1", server.rest_port, timeout=SECONDS)
            stack.callback(connection.close)
            connection.request("POST", "/v1/models/half:predict", body)
        yield


def test_what_only_tells_something_never_waits_for_runs(
    small_server: RunningServer, channel: grpc.Channel, stubs: ServingStubs
) -> None:
    prediction, model = stubs.PredictionServiceStub(channel), stubs.ModelServiceStub(channel)
    health: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
    status = stubs.get_model_status.GetModelStatusRequest()
    metadata = stubs.get_model_metadata.GetModelMetadataRequest(metadata_field=["signature_def"])
    status.model_spec.name = metadata.model_spec.name = "half"
    with busy(small_server, channel, stubs), requests.Session() as session:
        with pytest.raises(grpc.RpcError) as caught:
            prediction.Predict(count_request(stubs, 1), timeout=0.5)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

        durations = {
            "REST status": slowest(lambda: session.get(small_server.url("/v1/models/half"))),
            "REST metadata": slowest(lambda: session.get(small_server.url("/v1/models/half/metadata"))),
            "gRPC status": slowest(lambda: model.GetModelStatus(status, timeout=SECONDS)),
            "gRPC metadata": slowest(lambda: prediction.GetModelMetadata(metadata, timeout=SECONDS)),
            "gRPC health": slowest(lambda: health(b"", timeout=SECONDS)),
        }

    assert {name: seconds for name, seconds in durations.items() if seconds >= QUICK_SECONDS} == {}


def test_run_that_grows_long_by_its_values_stops_nobody(
    server: RunningServer,
) -> None:
    for _ in range(20):
        assert count(server, 1).json() == {"outputs": 1}
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        run = threads.submit(count, server, FOREVER)
        while not run.done():
            answer = requests.get(server.url("/v1/models/half"), timeout=SECONDS)
            assert answer.elapsed.total_seconds() < 0.5

    assert (run.result().status_code, run.result().json()) == (
        504,
        {"error": "Timed out waiting for notification"},
    )


def test_broken_body_full_of_brackets_stops_nobody(server: RunningServer) -> None:
    body = b'{"instances": ' + b"[" * 60_000
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        refused = threads.submit(requests.post, server.url("/v1/models/half:predict"), body, timeout=SECONDS)
        while not refused.done():
            answer = requests.get(server.url("/v1/models/half"), timeout=SECONDS)
            assert answer.elapsed.total_seconds() < 0.5

    assert refused.result().status_code == 400


def test_stalled_connections_stop_nobody(server: RunningServer) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.rest_port)))
            connection.sendall(b"POST /v1/models/half:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")

        assert count(server, 3).json() == {"outputs": 3}


class Gated:
    """A fake runtime's function that waits until the gate opens."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.has_come = threading.Event()
        self.seen: list[float] = []

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.has_come.set()
        assert self.gate.wait(SECONDS)
        self.seen.append(float(inputs["x"][0]))
        return {"y": inputs["x"]}


def test_grpc_call_that_is_given_up_while_it_waits_is_never_run(
    stubs: ServingStubs, free_ports: Callable[[int], int]
) -> None:
    platform, gated, port = FakePlatform(), Gated(), free_ports(1)
    registry = Registry(platform, Retries())
    registry.load("half", 1, Path("/half/1"))
    platform.runtimes[0].functions["serving_default"] = gated
    server = GrpcServer(DataPlane(registry), ProtobufCodec(), threads=1)
    server.start(GrpcAddress(port, "127.0.0.1"))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        predict = stubs.PredictionServiceStub(channel).Predict
        running = predict.future(half_request(stubs, 1))
        assert gated.has_come.wait(SECONDS)
        given_up = predict.future(half_request(stubs, 2))
        waiting = predict.future(half_request(stubs, 3))
        # Answered after the server has seen both, because it comes later on the same connection.
        status = stubs.get_model_status.GetModelStatusRequest()
        status.model_spec.name = "half"
        stubs.ModelServiceStub(channel).GetModelStatus(status, timeout=SECONDS)
        given_up.cancel()
        stubs.ModelServiceStub(channel).GetModelStatus(status, timeout=SECONDS)
        gated.gate.set()
        running.result(SECONDS)
        waiting.result(SECONDS)
    server.stop(SECONDS)

    assert gated.seen == [1, 3]
