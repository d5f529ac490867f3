"""A model server that tells no signatures serves by its REST API: what it is sent, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from field_stacks import HANDLER, ON_STUB, FieldStack
from stub_binary import RecordedRequest

FIELD_MATRIX = ON_STUB
FIELD_ENVIRON = {"NO_METADATA": "1"}
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


def arrived(field: FieldStack) -> RecordedRequest:
    assert field.stub is not None
    return field.stub.predictions()[-1]


@pytest.mark.parametrize(
    ("body", "instances"),
    [
        ("1.0,2.0,5.0", [[1.0, 2.0, 5.0]]),
        ("1.0\n2.0\n5.0", [1.0, 2.0, 5.0]),
        ("1,2\r\n3,4\r\n", [[1, 2], [3, 4]]),
        ("iris,0.5,1.0,1.5", [["iris", 0.5, 1.0, 1.5]]),
        ('5,"pine, ""Tarama"" dip"', [[5, 'pine, "Tarama" dip']]),
        ("thanks, finally got through", [["thanks", " finally got through"]]),
        ("größe,ß", [["größe", "ß"]]),
    ],
)
def test_csv_rows_are_instances(field: FieldStack, body: str, instances: list[Any]) -> None:
    if field.path == HANDLER:
        return

    answer = field.invoke(body, "text/csv")

    assert answer.status == 200, answer.body
    assert arrived(field).json() == {"instances": instances}
    assert arrived(field).path == "/v1/models/half_plus_two:predict"


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [1.0, 2.0]}',
        '{ "instances" : [["iris", 0.5]] }',
        '{"inputs": {"x": [1.0]}}',
        '{"signature_name": "other", "instances": [true, null, {"a": "b"}]}',
    ],
)
def test_a_predict_request_arrives_as_it_is(field: FieldStack, body: str) -> None:
    answer = field.invoke(body)

    assert answer.status == 200, answer.body
    assert arrived(field).body == body.encode()


def test_a_refusal_comes_back_unchanged(field: FieldStack) -> None:
    answer = field.invoke('{"instances": ["REFUSE=RESOURCE_EXHAUSTED"]}')

    assert answer.status == 429
    assert answer.content_type == "application/json"
    assert answer.json() == {"error": "the stub was asked to refuse with RESOURCE_EXHAUSTED"}


@pytest.mark.parametrize(
    ("accept", "content_type", "body"),
    [
        ("application/json", "application/json", b'{"predictions": [2.5, 3.0, 4.5]}'),
        ("application/jsonlines", "application/jsonlines", b"2.5\n3.0\n4.5\n"),
        ("application/jsonlines;q=0.9, */*;q=0.1", "application/jsonlines", b"2.5\n3.0\n4.5\n"),
        ("text/csv", "text/csv", b"2.5\n3.0\n4.5\n"),
    ],
)
def test_the_answer_is_in_the_accepted_type(
    field: FieldStack, accept: str, content_type: str, body: bytes
) -> None:
    if field.path == HANDLER:
        return

    answer = field.invoke("1.0\n2.0\n5.0\n", "text/csv", Accept=accept)

    assert (answer.status, answer.content_type, answer.body) == (200, content_type, body)


@pytest.mark.parametrize("content_type", ["application/x-image", "application/octet-stream"])
def test_a_body_of_tensors_is_refused_by_its_type(field: FieldStack, content_type: str) -> None:
    if field.path == HANDLER:
        return

    answer = field.invoke('{"instances": [1.0]}', content_type)

    assert answer.status == 415
    assert answer.content_type == "application/json"
    assert content_type in answer.json()["error"]


def test_a_bare_payload_is_wrapped(field: FieldStack) -> None:
    if field.path == HANDLER:
        return

    answer = field.invoke('{"user": [10], "item": [10]}')

    assert answer.json() == {"predictions": [{"user": [7.0], "item": [7.0]}]}


def test_classify_goes_the_same_way(field: FieldStack) -> None:
    body = '{"examples": [{"x": 1.0}]}'

    answer = field.request(
        "POST",
        "/invocations",
        body.encode(),
        {"Content-Type": "application/json", ATTRIBUTES: "tfs-method=classify"},
    )

    assert answer.json() == {"results": [{"x": 2.5}]}
    assert arrived(field).path == "/v1/models/half_plus_two:classify"


def test_an_unknown_version_is_404(field: FieldStack) -> None:
    headers = {"Content-Type": "application/json", ATTRIBUTES: "tfs-model-version=9"}

    answer = field.request("POST", "/invocations", b'{"instances": [1.0]}', headers)

    assert (answer.status, answer.json()) == (
        404,
        {"error": "Servable not found for request: Specific(half_plus_two, 9)"},
    )


def test_metadata_is_not_asked_for_again_with_each_request(field: FieldStack) -> None:
    assert field.stub is not None
    field.stub.forget()

    answers = [field.invoke("1.0\n", "text/csv") for _ in range(10) if field.path != HANDLER]
    answers += [field.invoke(json.dumps({"instances": [1.0]})) for _ in range(10)]

    assert {answer.status for answer in answers} == {200}
    asked = [each for each in field.stub.requests() if each.method == "GetModelMetadata"]
    assert asked == []
    # NO_METADATA leaves the method out, and grpcio refuses by itself: the log tells of each time.
    assert field.stack.log.count("no signatures: model=half_plus_two") <= 6
