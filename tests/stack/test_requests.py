"""The same request gets the same answer on the direct path and through hooks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from artifacts import CONVERTING, artifact_with_hooks
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tensor_protos import read_tensor
from running_stack import RunningStack

PATHS = ("direct", "hooks")
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


@pytest.fixture(scope="module", params=PATHS)
def stack(
    request: pytest.FixtureRequest,
    half_plus_two: Path,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningStack]:
    artifact = half_plus_two
    if request.param == "hooks":
        artifact = artifact_with_hooks(tmp_path_factory.mktemp("hooks"), half_plus_two, CONVERTING)
    with RunningStack(artifact, free_ports(9), SAGEMAKER_TFS_INSTANCE_COUNT="2") as running:
        running.wait_until_ready()
        yield running


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", '{"instances": [1.0, 2.0, 5.0]}'),
        ("application/json; charset=utf-8", '{"instances": [1.0, 2.0, 5.0]}'),
        ("text/csv", "1.0\n2.0\n5.0\n"),
        ("application/jsonlines", "1.0\n2.0\n5.0\n"),
    ],
)
def test_every_format_gives_the_same_predictions(stack: RunningStack, content_type: str, body: str) -> None:
    answer = stack.invoke(body, content_type)

    assert answer.status == 200, answer.body
    assert answer.content_type == "application/json"
    assert answer.json() == {"predictions": [2.5, 3.0, 4.5]}


@pytest.mark.parametrize(
    "attributes",
    [
        "tfs-model-name=half_plus_two",
        "tfs-model-version=1",
        "tfs-method=predict",
        "tfs-model-name=half_plus_two,tfs-model-version=1,tfs-method=predict",
        " tfs-model-name = half_plus_two , tenant=a",
        "foo,=,a=b=c",
    ],
)
def test_attributes_choose_model_version_and_method(stack: RunningStack, attributes: str) -> None:
    answer = stack.invoke('{"instances": [1.0, 2.0, 5.0]}', **{ATTRIBUTES: attributes})

    assert answer.json() == {"predictions": [2.5, 3.0, 4.5]}


@pytest.mark.parametrize(
    ("attributes", "status"),
    [
        ("tfs-model-name=nope", 404),
        ("tfs-model-version=7", 404),
        ("tfs-method=delete", 400),
        ("tfs-model-name=../x", 400),
        ("tfs-model-version=one", 400),
    ],
)
def test_attributes_that_cannot_be_followed_are_named(
    stack: RunningStack, attributes: str, status: int
) -> None:
    answer = stack.invoke('{"instances": [1.0]}', **{ATTRIBUTES: attributes})

    assert answer.status == status, answer.body
    assert answer.content_type == "application/json"
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/invocations", 405),
        ("GET", "/nothing", 404),
        ("POST", "/v1/models/half_plus_two:predict", 404),
        ("DELETE", "/ping", 405),
    ],
)
def test_nginx_answers_its_own_errors_in_json(
    stack: RunningStack, method: str, path: str, status: int
) -> None:
    answer = stack.request(method, path)

    assert answer.status == status
    assert answer.content_type == "application/json"
    assert answer.json()["error"]


def test_model_servers_reason_reaches_the_client(stack: RunningStack) -> None:
    answer = stack.invoke('{"instances": ["one"]}')

    assert answer.status == 400
    assert "not of expected type: float" in answer.json()["error"]


def test_a_body_that_is_no_json_is_refused(stack: RunningStack) -> None:
    answer = stack.invoke('{"instances": [1,')

    assert answer.status == 400
    assert answer.json()["error"]


def test_official_stubs_talk_to_the_grpc_port(stack: RunningStack) -> None:
    stubs = import_serving_stubs()
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half_plus_two"
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=3)
    request.inputs["x"].float_val.extend([1.0, 2.0, 5.0])
    with grpc.insecure_channel(f"127.0.0.1:{stack.ports[0]}") as channel:
        answer = stubs.PredictionServiceStub(channel).Predict(request, timeout=10)

    assert answer.model_spec.version.value == 1
    assert read_tensor(answer.outputs["y"]).tolist() == [2.5, 3.0, 4.5]


def test_pings_leave_no_line_in_the_log(stack: RunningStack) -> None:
    for _ in range(20):
        assert stack.ping() == 200
    stack.invoke('{"instances": [1.0]}')

    assert "GET /ping" not in stack.log


def test_large_bodies_pass(stack: RunningStack) -> None:
    body = json.dumps({"instances": [float(i) for i in range(300_000)]})

    predictions = stack.invoke(body).json()["predictions"]

    assert predictions[-1] == 299_999 / 2 + 2
    assert len(predictions) == 300_000
