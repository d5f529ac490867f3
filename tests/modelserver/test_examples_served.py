"""Classify, regress and MultiInference on a real server, through every door."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import requests
from tests.modelserver.running_server import RunningServer

from pierhead.serving_stubs import ServingStubs

SECONDS = 30
EXAMPLES = [{"x": 4.0}, {"x": -1.5}]
CLASSES = [[["positive", 4.0], ["negative", -4.0]], [["negative", -1.5], ["positive", 1.5]]]
REGRESSIONS = [4.0, 1.25]
DOORS = ["", "/invocations"]


@pytest.fixture(scope="module")
def prediction(server: RunningServer, stubs: ServingStubs) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield stubs.PredictionServiceStub(channel)


def ask(server: RunningServer, method: str, body: Any, door: str = "") -> requests.Response:
    url = server.url(f"{door}/v1/models/half:{method}")
    return requests.post(url, json.dumps(body), headers={"Accept": "text/csv"}, timeout=SECONDS)


def example_request(
    stubs: ServingStubs, kind: str, method: str = "classify", examples: Any = EXAMPLES, context: Any = None
) -> Any:
    """Return a request for the signature of the method's name."""
    if method == "classify":
        request = stubs.classification.ClassificationRequest()
    else:
        request = stubs.regression.RegressionRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = method
    fill(getattr(request.input, kind), examples, context)
    return request


def fill(listed: Any, examples: Any, context: Any = None) -> None:
    listed.SetInParent()
    for example in examples:
        features = listed.examples.add().features.feature
        for name, value in example.items():
            features[name].float_list.value.append(value)
    for name, value in (context or {}).items():
        listed.context.features.feature[name].float_list.value.append(value)


def refusal(method: Callable[..., Any], request: Any) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.RpcError) as caught:
        method(request, timeout=SECONDS)
    return caught.value.code(), caught.value.details()


# REST, and the invocations that nginx passes on.


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("method", "results"), [("classify", CLASSES), ("regress", REGRESSIONS)])
def test_examples_have_results(server: RunningServer, door: str, method: str, results: Any) -> None:
    answers = {
        (answer.status_code, answer.headers["Content-Type"], answer.text)
        for answer in (
            ask(server, method, {"signature_name": method, "examples": EXAMPLES}, door) for _ in range(5)
        )
    }

    ((status, content_type, body),) = answers
    assert (status, content_type) == (200, "application/json")
    assert json.loads(body) == {"results": results}


def test_context_belongs_to_every_example(server: RunningServer) -> None:
    body = {"signature_name": "regress", "context": {"x": 4.0}, "examples": [{}, {"x": -1.5}]}

    assert ask(server, "regress", body).json() == {"results": REGRESSIONS}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("method", "body", "message"),
    [
        ("classify", {"signature_name": "z", "examples": [{}]}, "No signature was found with the name: z"),
        ("classify", {"examples": [{}]}, "No classification inputs found in SignatureDef: "),
        ("regress", {"examples": [{}]}, "No regression inputs found in SignatureDef: "),
        ("regress", {"signature_name": "pair", "examples": [{}]}, "Expected one input Tensor."),
        ("regress", {"signature_name": "classify", "examples": [{}]}, "Expected one output Tensor."),
        (
            "classify",
            {"signature_name": "regress", "examples": [{}]},
            'Expected classification signature outputs to contain at least one of "classes" or "scores".',
        ),
        (
            "classify",
            {"signature_name": "classify", "examples": [{}]},
            "Name: <unknown>, Feature: x (data type: float) is required but could not be found.",
        ),
        (
            "classify",
            {"signature_name": "classify", "examples": [{"x": 1}]},
            "Name: <unknown>, Key: x, Index: 0.  Data types don't match. Data type: int64 but expected "
            "type: float",
        ),
        ("regress", {"instances": [1]}, 'JSON Value: {\n    "instances": [1]\n} When method is classify, '),
    ],
)
def test_what_cannot_be_answered_is_told(
    server: RunningServer, door: str, method: str, body: Any, message: str
) -> None:
    answer = ask(server, method, body, door)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(message)


def test_body_converts_before_the_model_is_found(server: RunningServer) -> None:
    url = server.url("/v1/models/nobody:classify")

    assert requests.post(url, '{"examples": []}', timeout=SECONDS).status_code == 400
    assert requests.post(url, '{"examples": [{}]}', timeout=SECONDS).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"examples": [{"\xff": 1}]}', 400), (b'{"signature_name": "\xff", "examples": [{}]}', 400)],
)
def test_names_that_are_not_utf8_are_refused(server: RunningServer, body: bytes, status: int) -> None:
    assert requests.post(server.url("/v1/models/half:classify"), body, timeout=SECONDS).status_code == status


# gRPC.


def test_grpc_classify(prediction: Any, stubs: ServingStubs) -> None:
    response = prediction.Classify(example_request(stubs, "example_list"), timeout=SECONDS)
    classes = [[[each.label, each.score] for each in row.classes] for row in response.result.classifications]

    assert classes == CLASSES
    assert (response.model_spec.version.value, response.model_spec.signature_name) == (123, "classify")


def test_grpc_regress_with_context(prediction: Any, stubs: ServingStubs) -> None:
    request = example_request(
        stubs, "example_list_with_context", "regress", [{}, {"x": -1.5}], context={"x": 4.0}
    )
    response = prediction.Regress(request, timeout=SECONDS)

    assert [each.value for each in response.result.regressions] == REGRESSIONS


def test_grpc_input_without_examples_is_empty(prediction: Any, stubs: ServingStubs) -> None:
    expected = grpc.StatusCode.INVALID_ARGUMENT, "Input is empty."
    unset = example_request(stubs, "example_list")
    unset.ClearField("input")

    assert refusal(prediction.Classify, example_request(stubs, "example_list", examples=[])) == expected
    assert refusal(prediction.Classify, unset) == expected


def test_grpc_request_without_a_spec(prediction: Any, stubs: ServingStubs) -> None:
    expected = grpc.StatusCode.INVALID_ARGUMENT, "Missing ModelSpec"

    assert refusal(prediction.Classify, stubs.classification.ClassificationRequest()) == expected
    assert refusal(prediction.Regress, stubs.regression.RegressionRequest()) == expected


def test_grpc_unknown_signature_is_an_invalid_argument(prediction: Any, stubs: ServingStubs) -> None:
    request = example_request(stubs, "example_list")
    request.model_spec.signature_name = "z"
    expected = grpc.StatusCode.INVALID_ARGUMENT, "No signature was found with the name: z"

    assert refusal(prediction.Classify, request) == expected


def test_grpc_predict_takes_serialised_examples(prediction: Any, stubs: ServingStubs) -> None:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = "regress"
    examples = example_request(stubs, "example_list").input.example_list.examples
    request.inputs["inputs"].dtype = 7
    request.inputs["inputs"].tensor_shape.dim.add(size=2)
    request.inputs["inputs"].string_val.extend(example.SerializeToString() for example in examples)
    response = prediction.Predict(request, timeout=SECONDS)

    assert list(response.outputs["outputs"].float_val) == REGRESSIONS


def multi_request(stubs: ServingStubs, *methods: str) -> Any:
    request = stubs.inference.MultiInferenceRequest()
    for method in methods:
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name = "half"
        task.model_spec.signature_name = method
    fill(request.input.example_list, EXAMPLES)
    return request


def test_grpc_multi_inference_needs_one_input_tensor(prediction: Any, stubs: ServingStubs) -> None:
    expected = grpc.StatusCode.INVALID_ARGUMENT, "Input tensor must be the same for all Signatures."

    assert refusal(prediction.MultiInference, multi_request(stubs, "classify", "regress")) == expected


@pytest.mark.parametrize("method", ["classify", "regress"])
def test_grpc_multi_inference_answers_each_task(prediction: Any, stubs: ServingStubs, method: str) -> None:
    (result,) = prediction.MultiInference(multi_request(stubs, method), timeout=SECONDS).results

    assert (result.model_spec.name, result.model_spec.version.value) == ("half", 123)
    if method == "classify":
        rows = result.classification_result.classifications
        assert [[[each.label, each.score] for each in row.classes] for row in rows] == CLASSES
    else:
        assert [each.value for each in result.regression_result.regressions] == REGRESSIONS


def test_grpc_multi_inference_without_tasks(prediction: Any, stubs: ServingStubs) -> None:
    expected = grpc.StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified."

    assert refusal(prediction.MultiInference, multi_request(stubs)) == expected
