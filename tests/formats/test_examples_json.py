"""The conformance cases of classify and regress, and of error bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pierhead.errors import Code, ServingError
from pierhead.formats.examples_json import (
    Feature,
    parse_examples,
    render_classifications,
    render_regressions,
)
from pierhead.formats.predict_json import render_error
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tensor_protos import write_example

CASES: list[dict[str, Any]] = [
    case
    for case in map(json.loads, (Path(__file__).parent / "tfs_json.jsonl").read_text().splitlines())
    if case["method"] != "predict"
]


def cases(direction: str, *methods: str) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in CASES
        if case["direction"] == direction and case["method"] in methods
    ]


def plain(features: dict[str, Feature]) -> dict[str, Any]:
    def value(element: Any) -> Any:
        text = element.decode() if isinstance(element, bytes) else element
        named = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return named.get(repr(text), text)

    return {
        name: {"kind": each.kind, "values": [value(element) for element in each.values]}
        for name, each in features.items()
    }


def test_every_conformance_case_is_driven() -> None:
    driven = [
        *cases("request", "classify", "regress"),
        *cases("response", "classify"),
        *cases("response", "regress"),
        *cases("response", "error"),
    ]

    assert len(driven) == len(CASES)


@pytest.mark.parametrize("case", cases("request", "classify", "regress"))
def test_request_becomes_what_the_reference_makes_of_it(case: dict[str, Any]) -> None:
    expect = case["expect"]
    if expect["status"] != "OK":
        with pytest.raises(ServingError) as raised:
            parse_examples(case["json"].encode())

        assert (raised.value.code, raised.value.message) == (expect["grpc_code"], expect["error_message"])
        return
    request = parse_examples(case["json"].encode())

    assert request.signature_name == expect["signature_name"]
    assert [plain(example) for example in request.examples] == expect["examples"]
    assert (request.context is not None) == (expect["input_kind"] == "example_list_with_context")
    assert plain(request.context or {}) == expect.get("context", {})


def refusal(case: dict[str, Any], render: Any, result: Any) -> str | None:
    expected = case["expect"].get("body")
    if expected is not None:
        assert render(result) == expected.encode()
        return None
    with pytest.raises(ServingError) as raised:
        render(result)
    assert raised.value.code is Code.INVALID_ARGUMENT
    return raised.value.message


@pytest.mark.parametrize("case", cases("response", "classify"))
def test_classifications_are_byte_for_byte_the_reference_s(case: dict[str, Any]) -> None:
    result = [[(label.encode(), score) for label, score in classes] for classes in case["result"]]

    assert refusal(case, render_classifications, result) == case["expect"].get("error_message")


@pytest.mark.parametrize("case", cases("response", "regress"))
def test_regressions_are_byte_for_byte_the_reference_s(case: dict[str, Any]) -> None:
    result = np.array([float(value) for value in case["result"]], np.float32)

    assert refusal(case, render_regressions, result) == case["expect"].get("error_message")


@pytest.mark.parametrize("case", cases("response", "error"))
def test_error_bodies_are_byte_for_byte_the_reference_s(case: dict[str, Any]) -> None:
    assert render_error(case["message"]) == case["expect"]["body"].encode()


def test_examples_become_messages() -> None:
    (example,) = parse_examples(b'{"examples":[{"a":[1.5],"b":"x","c":true,"d":[]}]}').examples
    proto = import_serving_stubs().classification.ClassificationRequest().input.example_list.examples.add()
    write_example(example, proto)
    features = proto.features.feature

    assert list(features["a"].float_list.value) == [1.5]
    assert list(features["b"].bytes_list.value) == [b"x"]
    assert list(features["c"].int64_list.value) == [1]
    assert features["d"].WhichOneof("kind") is None
