"""A real model server in a process of its own: both doors, its start and its end."""

from __future__ import annotations

import concurrent.futures
import gzip
import http.client
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from tests.modelserver.running_server import RunningServer, run_to_end, running_server

from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import read_tensor, write_tensor

FOREVER = 2_000_000_000
SECONDS = 30


@pytest.fixture(scope="module")
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def prediction(channel: grpc.Channel, stubs: ServingStubs) -> Any:
    return stubs.PredictionServiceStub(channel)


def predict_request(stubs: ServingStubs, signature: str = "", **inputs: Any) -> Any:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = signature
    for name, array in inputs.items():
        write_tensor(array, request.inputs[name])
    return request


def refusal(method: Callable[..., Any], request: Any) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.RpcError) as caught:
        method(request, timeout=SECONDS)
    return caught.value.code(), caught.value.details()


def post(server: RunningServer, path: str, body: Any, **headers: str) -> requests.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.post(server.url(path), data, headers=named, timeout=SECONDS)


def predict(server: RunningServer, body: Any, **headers: str) -> requests.Response:
    return post(server, "/v1/models/half:predict", body, **headers)


# REST.


def test_rest_predict_is_laid_out_as_the_original(server: RunningServer) -> None:
    assert predict(server, {"instances": [1, 2, 5]}).content == (
        b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'
    )


def test_rest_predict_answers_the_same_inline_and_in_a_thread(server: RunningServer) -> None:
    answers = {predict(server, {"inputs": [[1, 2], [3, 4]]}).content for _ in range(20)}

    assert len(answers) == 1


def test_large_body_is_served(server: RunningServer) -> None:
    values = list(range(200_000))
    answer = predict(server, {"instances": values})

    assert answer.json()["predictions"] == [value / 2 + 2 for value in values]


def test_gzip_body_is_inflated(server: RunningServer) -> None:
    body = gzip.compress(b'{"instances": [1]}')

    assert predict(server, body, Content_Encoding="gzip").json() == {"predictions": [2.5]}


def test_other_signature_by_name(server: RunningServer) -> None:
    row = {"a": [1, 2], "b": "text"}

    assert predict(server, {"signature_name": "pair", "instances": [row]}).json() == {
        "predictions": [{"product": [3.0], "text": "text!"}]
    }


def test_unknown_signature_is_told_in_rests_own_words(server: RunningServer) -> None:
    answer = predict(server, {"signature_name": "z", "instances": [1]})

    assert answer.status_code == 400
    assert answer.json() == {"error": 'Serving signature name: "z" not found in signature def'}


def test_text_of_an_operation_reaches_the_client(server: RunningServer) -> None:
    answer = predict(server, {"signature_name": "pair", "inputs": {"a": [[1, 2, 3]], "b": ["x"]}})

    assert answer.status_code == 400
    assert "Matrix size-incompatible" in answer.json()["error"]


def test_broken_json_is_refused_before_an_unknown_model(server: RunningServer) -> None:
    assert post(server, "/v1/models/nobody:predict", b"{").status_code == 400
    assert post(server, "/v1/models/nobody:predict", b"{}").status_code == 404


def test_run_beyond_the_time_limit_is_ended(server: RunningServer) -> None:
    answer = predict(server, {"signature_name": "count", "inputs": FOREVER})

    assert answer.status_code == 504
    assert answer.json() == {"error": "Timed out waiting for notification"}


def test_status_does_not_wait_behind_runs(server: RunningServer) -> None:
    body = {"signature_name": "count", "inputs": FOREVER}
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(predict, server, body) for _ in range(4)]
        started = time.monotonic()
        while not all(run.done() for run in runs):
            assert requests.get(server.url("/v1/models/half"), timeout=SECONDS).status_code == 200
            assert time.monotonic() - started < SECONDS

    assert {run.result().status_code for run in runs} == {504}


def test_metadata_has_the_doubled_key(server: RunningServer) -> None:
    answer = requests.get(server.url("/v1/models/half/metadata"), timeout=SECONDS)
    signatures = answer.json()["metadata"]["signature_def"]["signature_def"]

    assert answer.text.startswith('{\n"model_spec":{\n "name": "half",\n')
    assert answer.json()["model_spec"] == {"name": "half", "version": "123", "signature_name": ""}
    assert signatures["serving_default"]["outputs"]["y"]["dtype"] == "DT_FLOAT"
    assert signatures["serving_default"]["inputs"]["x"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}],
        "unknown_rank": False,
    }
    assert signatures["__saved_model_init_op"]["outputs"]["__saved_model_init_op"]["dtype"] == "DT_INVALID"


# Invocations.


def invoke(server: RunningServer, body: Any, **headers: str) -> requests.Response:
    return post(server, "/invocations/v1/models/half:predict", body, **headers)


def test_invocation_reads_by_content_type_and_answers_by_accept(server: RunningServer) -> None:
    answer = invoke(server, b"1\n2\n5\n", Content_Type="text/csv", Accept="text/csv")

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/csv")
    assert [float(line) for line in answer.text.split()] == [2.5, 3.0, 4.5]


def test_invocation_without_accept_takes_the_given_default(server: RunningServer) -> None:
    answer = invoke(server, b"1\n", Content_Type="text/csv", X_Pierhead_Default_Accept="text/csv")

    assert answer.headers["Content-Type"] == "text/csv"
    assert invoke(server, b"[1]").headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/invocations/v1/models/half:predict", b"x", {"Content_Type": "application/pdf"}, 415),
        ("/invocations/v1/models/half:predict", b"[1]", {"Accept": "image/png"}, 406),
        ("/invocations/v1/models/half:predict", b"[1]", {"Accept": f"image/{'x' * 300}"}, 406),
        ("/invocations/v1/models/half:predict", b"{", {}, 400),
        ("/invocations/v1/models/nobody:predict", b"[1]", {}, 404),
        ("/invocations/v1/models/half/versions/7:predict", b"[1]", {}, 404),
        ("/invocations/v1/models/half:classify", b"[1]", {}, 400),
        ("/invocations/nothing", b"[1]", {}, 404),
    ],
)
def test_refused_invocation_is_json_with_a_reason(
    server: RunningServer, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = post(server, path, body, **headers)

    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert list(answer.json()) == ["error"]


# gRPC.


def test_grpc_predict_fills_in_the_effective_spec(prediction: Any, stubs: ServingStubs) -> None:
    request = predict_request(stubs, x=np.array([1, 2, 5], np.float32))
    response = prediction.Predict(request, timeout=SECONDS)

    assert read_tensor(response.outputs["y"], "y").tolist() == [2.5, 3.0, 4.5]
    assert (response.model_spec.version.value, response.model_spec.signature_name) == (123, "serving_default")
    assert list(response.outputs["y"].float_val) == [2.5, 3.0, 4.5]


def test_grpc_output_filter(prediction: Any, stubs: ServingStubs) -> None:
    inputs = {"a": np.ones([1, 2], np.float32), "b": np.array([b"x"], object)}
    request = predict_request(stubs, "pair", **inputs)
    request.output_filter.append("text")

    assert set(prediction.Predict(request, timeout=SECONDS).outputs) == {"text"}


def test_grpc_message_beyond_four_megabytes(
    prediction: Any, stubs: ServingStubs, server: RunningServer
) -> None:
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    request = predict_request(stubs, x=np.zeros(3_000_000, np.float32))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", unlimited) as channel:
        response = stubs.PredictionServiceStub(channel).Predict(request, timeout=SECONDS)

    assert response.outputs["y"].tensor_shape.dim[0].size == 3_000_000


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"name": ""}, grpc.StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified."),
        ({"name": "n"}, grpc.StatusCode.NOT_FOUND, "Servable not found for request: Latest(n)"),
        ({"version": 7}, grpc.StatusCode.NOT_FOUND, "Servable not found for request: Specific(half, 7)"),
        (
            {"version_label": "l"},
            grpc.StatusCode.INVALID_ARGUMENT,
            "Unrecognized servable version label: l",
        ),
        (
            {"signature_name": "z"},
            grpc.StatusCode.FAILED_PRECONDITION,
            'Serving signature key "z" not found.',
        ),
    ],
)
def test_grpc_predict_refusals(
    prediction: Any, stubs: ServingStubs, changes: dict[str, Any], code: grpc.StatusCode, message: str
) -> None:
    request = predict_request(stubs, x=np.zeros(1, np.float32))
    for name, value in changes.items():
        if name == "version":
            request.model_spec.version.value = value
        else:
            setattr(request.model_spec, name, value)

    assert refusal(prediction.Predict, request) == (code, message)


def test_grpc_dtype_is_checked(prediction: Any, stubs: ServingStubs) -> None:
    expected = "Expects arg[0] to be float but double is provided"

    assert refusal(prediction.Predict, predict_request(stubs, x=np.zeros(1)))[1] == expected


def test_grpc_request_without_a_spec(prediction: Any, stubs: ServingStubs) -> None:
    expected = grpc.StatusCode.INVALID_ARGUMENT, "Missing ModelSpec"

    assert refusal(prediction.Predict, stubs.predict.PredictRequest()) == expected
    assert (
        refusal(prediction.GetModelMetadata, stubs.get_model_metadata.GetModelMetadataRequest()) == expected
    )


def test_grpc_metadata(prediction: Any, stubs: ServingStubs) -> None:
    request = stubs.get_model_metadata.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half"
    signatures = stubs.get_model_metadata.SignatureDefMap()
    response = prediction.GetModelMetadata(request, timeout=SECONDS)

    assert response.metadata["signature_def"].Unpack(signatures)
    assert {"serving_default", "pair", "count"} <= set(signatures.signature_def)
    request.metadata_field[:] = []
    assert "at least one metadata_field" in str(refusal(prediction.GetModelMetadata, request)[1])
    request.metadata_field[:] = ["z"]
    assert refusal(prediction.GetModelMetadata, request)[1] == "Metadata field z is not supported"


def test_grpc_status(channel: grpc.Channel, stubs: ServingStubs) -> None:
    service = stubs.ModelServiceStub(channel)
    request = stubs.get_model_status.GetModelStatusRequest()
    request.model_spec.name = "half"
    (status,) = service.GetModelStatus(request, timeout=SECONDS).model_version_status

    assert (status.version, status.state, status.status.error_code) == (123, 30, 0)
    request.model_spec.name = "n"
    expected = grpc.StatusCode.NOT_FOUND, "Could not find any versions of model n"
    assert refusal(service.GetModelStatus, request) == expected


@pytest.mark.parametrize(
    "method", ["/tensorflow.serving.SessionService/SessionRun", "/grpc.health.v1.Health/Check"]
)
def test_grpc_method_that_is_not_served(channel: grpc.Channel, method: str) -> None:
    assert refusal(channel.unary_unary(method), b"")[0] is grpc.StatusCode.UNIMPLEMENTED


# Start and end.


def test_version_needs_no_tensorflow() -> None:
    ended = run_to_end("--version")

    assert ended.returncode == 0
    assert [line.partition(":")[0] for line in ended.stdout.splitlines()] == [
        "TensorFlow ModelServer",
        "TensorFlow Library",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--help"], "usage:"), (["--port=x"], "--port=x: must be an integer of 32 bits")],
)
def test_usage_ends_with_255(arguments: list[str], expected: str) -> None:
    ended = run_to_end(*arguments)

    assert ended.returncode == 255
    assert expected in ended.stdout


def test_contradicting_flags_end_the_start_with_255() -> None:
    ended = run_to_end("--unknown", "--port=1")

    assert ended.returncode == 255
    assert ended.stdout.startswith("unknown argument: --unknown\nusage:")
    assert ended.stdout.endswith(
        "\nFailed to start server. Error: INVALID_ARGUMENT: "
        "Both server_options.model_base_path and server_options.model_config_file are empty!\n"
    )


def test_model_that_does_not_load_ends_the_start_with_255(
    tmp_path: Path, free_ports: Callable[[int], int]
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"no graph at all")
    model = ["--model_name=m", f"--model_base_path={tmp_path}", "--max_num_load_retries=0"]
    ended = run_to_end(f"--port={free_ports(1)}", *model)

    assert ended.returncode == 255
    assert ended.stdout.startswith(
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: "
        "{{name: m version: 1} due to error: "
    )
    assert "Traceback" not in ended.stderr


def test_term_finishes_the_run_in_flight_and_ends_with_0(
    half_model: Path, free_ports: Callable[[int], int]
) -> None:
    body = json.dumps({"signature_name": "count", "inputs": FOREVER})
    with running_server(free_ports(2), half_model, "--rest_api_timeout_in_ms=2000") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=SECONDS)
        connection.request("POST", "/v1/models/half:predict", body)
        # Once this later request is answered, the earlier one is in flight.
        assert requests.get(server.url("/v1/models/half"), timeout=SECONDS).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()

        assert (answer.status, answer.headers["Connection"]) == (504, "close")
        connection.close()
        _, log = server.process.communicate(timeout=SECONDS)
        assert server.process.returncode == 0
        assert all(" model-server: " in line for line in log.decode().splitlines())
