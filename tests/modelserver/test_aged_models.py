"""Models of every age in one real server, and broken ones that it survives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests
from tests.modelserver.aged_models import build_aged_models, config_text, reload_request
from tests.modelserver.running_server import RunningServer, run_to_end, running_server

from pierhead.serving_stubs import ServingStubs

SECONDS = 60
GOOD = ("tables", "stateless", "ragged", "examples", "words", "defaults", "keras", "warm")


@pytest.fixture(scope="session")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_aged_models(tmp_path_factory)


@pytest.fixture(scope="module")
def museum(
    aged: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """Return a server of all good models."""
    config = tmp_path_factory.mktemp("museum") / "models.config"
    config.write_text(config_text(*(aged / name for name in GOOD)))
    monitoring = config.with_name("monitoring.config")
    monitoring.write_text("prometheus_config { enable: true }")
    flags = [
        f"--model_config_file={config}",
        f"--monitoring_config_file={monitoring}",
        "--max_num_load_retries=0",
        "--file_system_poll_wait_seconds=0",
    ]
    with running_server(free_ports(2), aged, *flags, known="/v1/models/keras") as running:
        yield running


@pytest.fixture(scope="module")
def channel(museum: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{museum.grpc_port}") as channel:
        yield channel


def post(server: RunningServer, name: str, body: Any, method: str = "predict") -> requests.Response:
    return requests.post(server.url(f"/v1/models/{name}:{method}"), json=body, timeout=SECONDS)


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("tables", ["dog", "zebra"], {"id": [1, -1], "weight": [20.0, 10.0]}),
        ("stateless", [1.0, 2.0], [3.0, 6.0]),
        ("words", ["hi"], ["HI!"]),
        ("keras", [[1.0, 2.0]], [[4.0]]),
    ],
)
def test_model_of_any_age_is_served(museum: RunningServer, name: str, inputs: Any, expected: Any) -> None:
    assert {"outputs": expected} == post(museum, name, {"inputs": inputs}).json()


def test_default_of_the_signature_stands_in_for_an_input(channel: grpc.Channel, stubs: ServingStubs) -> None:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "defaults"
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=2)
    request.inputs["x"].float_val.extend([1.0, 2.0])
    response = stubs.PredictionServiceStub(channel).Predict(request, timeout=SECONDS)

    assert [7.0, 14.0] == list(response.outputs["y"].float_val)


def test_ragged_output_is_refused_with_a_reason(museum: RunningServer) -> None:
    answer = post(museum, "ragged", {"inputs": ["a b"]})

    expected = "Tensor parts of the signature is ragged: only dense tensors can be served"
    assert (400, {"error": expected}) == (answer.status_code, answer.json())


def test_page_tells_of_warm_up_requests(aged: Path, museum: RunningServer) -> None:
    page = requests.get(museum.url("/monitoring/prometheus/metrics"), timeout=SECONDS).text
    labels = f'{{model_path="{aged / "warm" / "1"}",status="OK"}}'

    assert f":tensorflow:serving:model_warmup_latency_count{labels} 1\n" in page
    assert f":tensorflow:serving:model_warmup_records_read{labels} 5\n" in page


def test_warmed_model_serves(museum: RunningServer) -> None:
    answer = post(museum, "warm", {"signature_name": "regress", "examples": [{"x": 1.5}]}, "regress")

    assert {"results": [2.5]} == answer.json()


BROKEN = {
    "unknown_op": ("NOT_FOUND", "Op type not registered 'OpOfTheFuture'"),
    "torn_variables": ("OUT_OF_RANGE", "Read less bytes than requested"),
    "wrong_variables": ("DATA_LOSS", "Checksum does not match"),
    "lost_variables": ("INVALID_ARGUMENT", "not a valid checkpoint"),
    "lost_asset": ("NOT_FOUND", "vocabulary.txt; No such file or directory"),
    "no_graph": ("INVALID_ARGUMENT", "Cannot parse file"),
    "empty_graph": ("NOT_FOUND", "tags 'serve' could not be found"),
    "no_model": ("NOT_FOUND", "SavedModel file does not exist"),
    "tagged": ("NOT_FOUND", "tags 'serve' could not be found"),
    "cold": ("INVALID_ARGUMENT", "Matrix size-incompatible"),
    "damaged": ("DATA_LOSS", "Please verify your warmup data is in TFRecord format."),
}


def test_broken_models_end_with_a_reason_and_the_others_serve_on(
    museum: RunningServer, aged: Path, channel: grpc.Channel, stubs: ServingStubs
) -> None:
    service = stubs.ModelServiceStub(channel)
    request = reload_request(stubs, *(aged / name for name in (*GOOD, *BROKEN)))
    with pytest.raises(grpc.RpcError) as caught:
        service.HandleReloadConfigRequest(request, timeout=SECONDS)

    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert str(caught.value.details()).startswith(f"{len(BROKEN)} model(s) did not become available: {{")
    for name, (code, reason) in BROKEN.items():
        (status,) = requests.get(museum.url(f"/v1/models/{name}"), timeout=SECONDS).json()[
            "model_version_status"
        ]
        assert ("END", code) == (status["state"], status["status"]["error_code"]), name
        assert reason in status["status"]["error_message"], name
    assert {"outputs": [3.0]} == post(museum, "stateless", {"inputs": [1.0]}).json()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (None, "ServerModelConfig type not supported by HandleReloadConfigRequest. "),
        ([("m", "/m", "tensorflow")] * 2, "Illegal to list model m multiple times in config list"),
        ([("m", "m", "tensorflow")], "Expected model m to have an absolute path or URI; got base_path()=m"),
        ([("m", "/m", "")], "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "),
        ([("m", "/m", "torch")], "Model m requests unsupported platform torch"),
        ([("keras", "/m", "torch")], "Illegal to change a model's platform. For model keras platform was "),
    ],
)
def test_reload_that_breaks_a_rule_is_refused(
    channel: grpc.Channel, stubs: ServingStubs, entries: list[tuple[str, str, str]] | None, message: str
) -> None:
    request = stubs.model_management.ReloadConfigRequest()
    for name, base_path, platform in entries or ():
        request.config.model_config_list.config.add(name=name, base_path=base_path, model_platform=platform)
    with pytest.raises(grpc.RpcError) as caught:
        stubs.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=SECONDS)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(caught.value.details()).startswith(message)


def test_other_tags_and_no_warmup_are_a_matter_of_flags(aged: Path, free_ports: Callable[[int], int]) -> None:
    flags = ["--saved_model_tags=serve,gpu", "--enable_model_warmup=false"]
    with running_server(free_ports(2), aged / "tagged", *flags) as server:
        assert {"outputs": [5.0]} == post(server, "half", {"inputs": [1.0]}).json()


def test_model_with_an_unknown_operation_ends_the_start(aged: Path, free_ports: Callable[[int], int]) -> None:
    model = [f"--model_base_path={aged / 'unknown_op'}", "--max_num_load_retries=0"]
    ended = run_to_end(f"--port={free_ports(1)}", *model)

    assert ended.returncode == 255
    assert ended.stdout.startswith("Failed to start server. Error: UNKNOWN: 1 servable(s) did not become")
    assert "Traceback" not in ended.stderr
