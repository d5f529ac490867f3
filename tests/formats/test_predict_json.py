"""The conformance cases of TensorFlow Serving's JSON, and rules that they leave out."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pierhead.errors import ServingError
from pierhead.formats.predict_json import Layout, parse_predict, render_predict
from pierhead.formats.tensors import Array, Signature, TensorSpec
from pierhead.tensor_protos import NUMPY_DTYPES

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "tfs_json.jsonl").read_text().splitlines())
    # Classify and regress requests hold tf.Examples, which `examples_json` reads.
    if case["method"] == "predict"
}
# Oddities that upstream's own notes call undefined; the stand-in answers otherwise.
# Upstream's echo of a huge float is not the shortest text; its digits are not worth an algorithm.
MESSAGES_DIFFER = {"uint64_overflow"}
KNOWN_TO_DIFFER = {"quirk_dup_name_in_row_object", "quirk_multi_input_first_item_b64"}


def cases(direction: str) -> list[Any]:
    return [
        pytest.param(case, id=name, marks=pytest.mark.xfail(strict=True) if name in KNOWN_TO_DIFFER else ())
        for name, case in CASES.items()
        if case["direction"] == direction
    ]


def body_of(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["json_b64"]) if "json_b64" in case else case["json"].encode()


def array_of(dtype: str, shape: list[int], values: list[Any]) -> Array:
    if dtype == "DT_STRING":
        array = np.empty(len(values), object)
        array[:] = [base64.b64decode(v["b64"]) if isinstance(v, dict) else v.encode() for v in values]
        return array.reshape(shape)
    numbers = [float(value) if isinstance(value, str) else value for value in values]
    wide = {"i": np.int64, "u": np.uint64}.get(NUMPY_DTYPES[dtype].kind, NUMPY_DTYPES[dtype])
    return np.array(numbers, wide).astype(NUMPY_DTYPES[dtype]).reshape(shape)


def assert_same(expected: Array, actual: Array) -> None:
    assert (expected.dtype, expected.shape) == (actual.dtype, actual.shape)
    if expected.dtype == np.float64:
        np.testing.assert_allclose(actual, expected, rtol=1e-15)
    else:
        np.testing.assert_array_equal(actual, expected)
    if expected.dtype.kind == "f":
        signs = np.signbit(np.nan_to_num(actual)), np.signbit(np.nan_to_num(expected))
        np.testing.assert_array_equal(*signs)


def converted(case: dict[str, Any]) -> dict[str, Any]:
    document = parse_predict(body_of(case))
    specs = {name: TensorSpec(spec["dtype"], spec["shape"]) for name, spec in case["signature"].items()}
    inputs = document.tensors(Signature("s", "", specs, {}))
    return {"name": document.signature_name, "format": inputs.layout.value, "arrays": inputs.arrays}


@pytest.mark.parametrize("case", cases("request"))
def test_request_becomes_what_the_reference_makes_of_it(case: dict[str, Any]) -> None:
    expect = case["expect"]
    if expect["status"] != "OK":
        with pytest.raises(ServingError) as raised:
            converted(case)

        assert expect["grpc_code"] == raised.value.code
        assert case["error_substring"] in raised.value.message
        assert case["id"] in MESSAGES_DIFFER or expect["error_message"] == raised.value.message
        return
    result = converted(case)

    assert (expect["signature_name"], expect["format"]) == (result["name"], result["format"])
    assert expect["tensors"].keys() == result["arrays"].keys()
    for name, spec in expect["tensors"].items():
        values = case.get("model_sees", {}).get(name, spec["values"])
        assert_same(array_of(spec["dtype"], spec["shape"], values), result["arrays"][name])


@pytest.mark.parametrize("case", cases("response"))
def test_answer_is_byte_for_byte_the_reference_s(case: dict[str, Any]) -> None:
    expect = case["expect"]
    outputs = {
        name: array_of(spec["dtype"], spec["shape"], spec["values"] or [0] * int(np.prod(spec["shape"])))
        for name, spec in case["tensors"].items()
    }
    if expect["status"] != "OK":
        with pytest.raises(ServingError) as raised:
            render_predict(outputs, Layout(case["format"]))

        assert expect["grpc_code"] == raised.value.code
        assert expect.get("error_message", raised.value.message) == raised.value.message
        return
    expected = base64.b64decode(expect["body_b64"]) if "body_b64" in expect else expect["body"].encode()
    actual = render_predict(outputs, Layout(case["format"]))
    if expect.get("object_key_order") or case.get("object_key_order"):
        assert json.loads(expected) == json.loads(actual)
        assert sorted(expected.splitlines()) == sorted(actual.splitlines()) or len(expected) == len(actual)
    else:
        assert expected == actual
