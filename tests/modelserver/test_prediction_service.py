from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Signature, TensorSpec
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.prediction_service import PredictionService, counted, time_limit
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import write_tensor


@dataclass(frozen=True)
class Client:
    """What a method asks of gRPC's context: how long the client still waits."""

    seconds: float | None = None

    def time_remaining(self) -> float | None:
        return self.seconds


@pytest.fixture
def platform() -> FakePlatform:
    return FakePlatform()


@pytest.fixture
def service(platform: FakePlatform) -> PredictionService:
    registry = Registry(platform, Retries())
    registry.load("m", 3, Path("/m/3"))
    return PredictionService(DataPlane(registry), ProtobufCodec())


def predict_request(stubs: ServingStubs) -> Any:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "m"
    write_tensor(np.ones(1, np.float32), request.inputs["x"])
    return request


@pytest.mark.parametrize(
    ("seconds", "limit"),
    [(None, 0), (1e9, 0), (0.0001, 1), (0.001, 1), (0.3, 512), (1.024, 1024), (1.025, 2048), (60, 65_536)],
)
def test_limit_of_a_run_follows_the_client_s(seconds: float | None, limit: int) -> None:
    client: Any = Client(seconds)

    assert limit == time_limit(client)


def test_client_that_waits_no_longer_is_not_run_for() -> None:
    client: Any = Client(0)
    with pytest.raises(ServingError) as caught:
        time_limit(client)

    assert (caught.value.code, caught.value.message) == (
        Code.DEADLINE_EXCEEDED,
        "Timed out waiting for notification",
    )


def test_limit_reaches_the_run(
    service: PredictionService, platform: FakePlatform, stubs: ServingStubs
) -> None:
    client: Any = Client(0.3)
    service.predict(predict_request(stubs), client)

    assert platform.runtimes[0].runs == [(False, 512)]


def test_short_run_stays_in_the_caller_without_a_limit(
    service: PredictionService, platform: FakePlatform, stubs: ServingStubs
) -> None:
    client: Any = Client(0.3)
    for _ in range(2):
        service.predict(predict_request(stubs), client)

    assert platform.runtimes[0].runs[-1] == (True, 0)


def test_counted_method_is_timed_where_it_succeeds(service: PredictionService, stubs: ServingStubs) -> None:
    metrics, client, request = Metrics(), Client(), predict_request(stubs)
    method: Any = counted(metrics, "Predict", service.predict)
    method(request, client)
    request.model_spec.name = "n"
    with pytest.raises(ServingError):
        method(request, client)
    lines = metrics.page().decode().splitlines()

    assert ':tensorflow:serving:request_count{model_name="m",status="OK"} 1' in lines
    assert ':tensorflow:serving:request_count{model_name="n",status="NOT_FOUND"} 1' in lines
    assert [line for line in lines if "request_latency_count" in line] == [
        ':tensorflow:serving:request_latency_count{model_name="m",API="Predict",entrypoint="GRPC"} 1'
    ]


def test_examples_of_multi_inference_are_counted_once(platform: FakePlatform, stubs: ServingStubs) -> None:
    registry, metrics = Registry(platform, Retries()), Metrics()
    client: Any = Client()
    registry.load("m", 3, Path("/m/3"))
    runtime, method = platform.runtimes[0], "tensorflow/serving/regress"
    strings, floats = TensorSpec("DT_STRING", (-1,)), TensorSpec("DT_FLOAT", (-1,))
    request = stubs.inference.MultiInferenceRequest()
    request.input.example_list.examples.add()
    request.input.example_list.examples.add()
    for name in ("a", "b"):
        runtime.signatures[name] = Signature(name, method, {"inputs": strings}, {"outputs": floats})
        runtime.feeds = {**runtime.feeds, name: {"inputs": "e:0"}}
        runtime.functions[name] = lambda _: {"outputs": np.zeros(2, np.float32)}
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = "m", name
    service = PredictionService(DataPlane(registry, metrics=metrics), ProtobufCodec())
    service.multi_inference(request, client)
    page = metrics.page().decode().splitlines()

    assert ':tensorflow:serving:request_example_count_total{model="m"} 2' in page
    assert ':tensorflow:serving:request_example_counts_sum{model="m"} 2' in page
    assert ':tensorflow:serving:request_example_counts_count{model="m"} 1' in page
