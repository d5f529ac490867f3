"""A real server with all that is off by default: its metrics, its health, and its stricter checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from tests.modelserver.running_server import RunningServer, wait_until

from pierhead.modelserver.health import HealthService
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import write_tensor

SECONDS = 30
FOREVER = 2_000_000_000
PATH = "/monitoring/prometheus/metrics"
LINE = re.compile(
    r'# TYPE :[a-z_:]+ (counter|histogram)|:[a-z_:]+\{([A-Za-z_]+="[^"]*",?)*\} [0-9.e+]+'
    r"|# TYPE pierhead_[a-z_]+ gauge|pierhead_[a-z_]+ [0-9]+"
)


@pytest.fixture(scope="module")
def channel(full_server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{full_server.grpc_port}") as channel:
        yield channel


def series(server: RunningServer) -> dict[str, float]:
    page = requests.get(server.url(PATH), timeout=SECONDS).text
    pairs = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name.removeprefix(":tensorflow:serving:"): float(value) for name, _, value in pairs}


def predict_request(stubs: ServingStubs, model: str = "half", signature: str = "") -> Any:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    write_tensor(np.ones(1, np.float32), request.inputs["x"])
    return request


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT"])
def test_page_is_plain_text_in_prometheus_format(full_server: RunningServer, verb: str) -> None:
    answer = requests.request(verb, full_server.url(PATH), timeout=SECONDS)

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain")
    assert all(LINE.fullmatch(line) for line in answer.text.splitlines())


@pytest.mark.parametrize("door", ["", "/invocations"])
def test_rest_requests_are_counted_and_timed(full_server: RunningServer, door: str) -> None:
    counted = 'request_count{model_name="half",status="OK"}'
    timed = 'request_latency_count{model_name="half",API="predict",entrypoint="REST"}'
    ran = 'runtime_latency_count{model_name="half",API="Predict",runtime="TF1"}'
    before = series(full_server)
    for _ in range(3):
        answer = requests.post(
            full_server.url(f"{door}/v1/models/half:predict"), b'{"instances": [1]}', timeout=SECONDS
        )
        assert answer.status_code == 200
    after = series(full_server)

    for name in (counted, timed, ran):
        assert after[name] == before.get(name, 0) + 3


def test_refusals_are_counted_by_their_code(full_server: RunningServer) -> None:
    requests.get(full_server.url("/v1/models/nobody"), timeout=SECONDS)
    requests.get(full_server.url("/v1/wrong"), timeout=SECONDS)
    counts = series(full_server)

    assert counts['request_count{model_name="nobody",status="NOT_FOUND"}'] == 1
    assert counts['request_count{model_name="",status="INVALID_ARGUMENT"}'] == 1


def test_status_requests_have_no_api(full_server: RunningServer) -> None:
    requests.get(full_server.url("/v1/models/half"), timeout=SECONDS)

    assert series(full_server)['request_latency_count{model_name="half",API="",entrypoint="REST"}'] >= 1


def test_grpc_requests_are_counted_and_timed(
    full_server: RunningServer, channel: grpc.Channel, stubs: ServingStubs
) -> None:
    prediction = stubs.PredictionServiceStub(channel)
    prediction.Predict(predict_request(stubs), timeout=SECONDS)
    with pytest.raises(grpc.RpcError):
        prediction.Predict(predict_request(stubs, "missing"), timeout=SECONDS)
    counts = series(full_server)

    assert counts['request_latency_count{model_name="half",API="Predict",entrypoint="GRPC"}'] == 1
    assert counts['request_count{model_name="missing",status="NOT_FOUND"}'] == 1


def test_run_ends_with_the_client_s_deadline(
    full_server: RunningServer, channel: grpc.Channel, stubs: ServingStubs
) -> None:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = "count"
    write_tensor(np.array(FOREVER, np.int32), request.inputs["n"])
    with pytest.raises(grpc.RpcError) as caught:
        stubs.PredictionServiceStub(channel).Predict(request, timeout=0.5)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    ended = 'request_count{model_name="half",status="DEADLINE_EXCEEDED"}'
    wait_until(lambda: series(full_server).get(ended) == 1, SECONDS)


@pytest.mark.parametrize("name", ["", "ModelService", "PredictionService"])
def test_health_is_serving(channel: grpc.Channel, name: str) -> None:
    service = HealthService()
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check", service.request.SerializeToString, service.response.FromString
    )

    assert check(service.request(service=name), timeout=SECONDS).status == 1


def test_health_of_another_name_is_not_found(channel: grpc.Channel) -> None:
    name = b"tensorflow.serving.PredictionService"
    check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
    with pytest.raises(grpc.RpcError) as caught:
        check(b"\n" + bytes([len(name)]) + name, timeout=SECONDS)

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_signature_made_for_another_method_is_refused(full_server: RunningServer) -> None:
    body = b'{"signature_name": "classify", "examples": [{"x": 1.0}]}'
    answer = requests.post(full_server.url("/v1/models/half:classify"), body, timeout=SECONDS)

    assert answer.status_code == 400
    assert answer.json()["error"] == (
        "Expected classification signature method_name to be tensorflow/serving/classify. "
        "Was: tensorflow/serving/predict"
    )


def test_predict_wants_one_of_three_method_names(channel: grpc.Channel, stubs: ServingStubs) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stubs.PredictionServiceStub(channel).Predict(
            predict_request(stubs, signature="__saved_model_init_op"), timeout=SECONDS
        )

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert str(caught.value.details()).startswith("Expected prediction signature method_name to be one of {")


def test_reload_tells_the_increase_of_counters(
    full_server: RunningServer, channel: grpc.Channel, half_model: Path, stubs: ServingStubs
) -> None:
    stubs.PredictionServiceStub(channel).Predict(predict_request(stubs), timeout=SECONDS)
    names = ["/tensorflow/serving/request_count", "/no/such/metric"]
    request = stubs.model_management.ReloadConfigRequest(metric_names=names)
    request.config.model_config_list.config.add(
        name="half", base_path=str(half_model), model_platform="tensorflow"
    )
    answer = stubs.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=SECONDS)

    assert [(metric.name, metric.int64_value_increase) for metric in answer.metric] == [
        (name, 0) for name in names
    ]
    assert all(metric.HasField("int64_value_increase") for metric in answer.metric)
