"""The JSON conformance cases, sent to a real server's REST port."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.formats.test_predict_json import body_of
from tests.modelserver.conformance_cases import (
    ANSWERS,
    CLASSIFIER,
    REGRESSOR,
    Case,
    model_of,
    shown_cases,
    tensors_of,
)
from tests.modelserver.running_server import RunningServer, running_server

from pierhead.errors import ServingError
from pierhead.formats.predict_json import Layout, render_error, render_predict
from pierhead.serving_stubs import ServingStubs

CHECKOUT = Path(__file__).parents[2]
SECONDS = 30
WEB_SAFE = b"-_"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], int]
) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("conformance")
    build = [sys.executable, "-m", "tests.modelserver.build_conformance_models", str(folder)]
    subprocess.run(build, check=True, capture_output=True, timeout=150, cwd=CHECKOUT)
    entries = [
        f'config {{ name: "{model.name}" base_path: "{model}" model_platform: "tensorflow" }}'
        for model in sorted(folder.iterdir())
    ]
    config = folder / "models.config"
    config.write_text(f"model_config_list {{ {' '.join(entries)} }}")
    model = f"/v1/models/{ANSWERS}"
    with running_server(free_ports(2), folder, f"--model_config_file={config}", known=model) as running:
        yield running


def post(server: RunningServer, model: str, method: str, body: bytes) -> requests.Response:
    return requests.post(server.url(f"/v1/models/{model}:{method}"), body, timeout=SECONDS)


def named(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.mark.parametrize("case", named(shown_cases("request", "predict")))
def test_tensors_of_a_request_reach_the_model(server: RunningServer, case: Case) -> None:
    answer = post(server, model_of(case), "predict", body_of(case))
    expect = case["expect"]

    if expect["status"] == "OK":
        assert echoed(case) == (answer.status_code, answer.content)
    else:
        assert_refused(case, answer)


@pytest.mark.parametrize("case", named(shown_cases("request", "classify", "regress")))
def test_examples_of_a_request_reach_the_model(
    server: RunningServer, stubs: ServingStubs, case: Case
) -> None:
    is_classify = case["method"] == "classify"
    answer = post(server, CLASSIFIER if is_classify else REGRESSOR, case["method"], body_of(case))
    expect = case["expect"]

    if expect["status"] != "OK":
        assert_refused(case, answer)
        return
    wanted = [example_of(stubs, {**expect.get("context", {}), **each}) for each in expect["examples"]]
    results = json.loads(answer.content)["results"]
    if is_classify:
        received = [example_from(stubs, label) for ((label, _),) in results]
        # NaN is no equal of itself, but its text is.
        assert list(map(str, wanted)) == list(map(str, received))
    else:
        assert [each.ByteSize() for each in wanted] == results


@pytest.mark.parametrize("case", named(shown_cases("response", "predict")))
def test_tensors_of_a_model_are_written_as_the_reference_does(server: RunningServer, case: Case) -> None:
    key = "instances" if case["format"] == "row" else "inputs"
    body = json.dumps({"signature_name": case["id"], key: [0]})
    answer = post(server, ANSWERS, "predict", body.encode())

    assert_answered(case, answer)


@pytest.mark.parametrize("case", named(shown_cases("response", "classify", "regress")))
def test_results_of_a_model_are_written_as_the_reference_does(server: RunningServer, case: Case) -> None:
    body = json.dumps({"signature_name": case["id"], "examples": [{} for _ in case["result"]]})
    answer = post(server, ANSWERS, case["method"], body.encode())

    assert_answered(case, answer)


def test_most_cases_are_shown() -> None:
    assert len(shown_cases("request", "predict", "classify", "regress")) >= 160
    assert len(shown_cases("response", "predict", "classify", "regress")) >= 36


def echoed(case: Case) -> tuple[int, bytes]:
    """Return the answer with a case's tensors; some that can be sent cannot be written in JSON."""
    expect = case["expect"]
    try:
        return 200, render_predict(tensors_of(case, expect["tensors"]), Layout(expect["format"]))
    except ServingError as refusal:
        return 400, render_error(refusal.message)


def assert_refused(case: Case, answer: requests.Response) -> None:
    assert case["expect"]["http_status"] == answer.status_code
    assert case["error_substring"] in json.loads(answer.content)["error"]


def assert_answered(case: Case, answer: requests.Response) -> None:
    expect = case["expect"]
    if expect["status"] != "OK":
        assert_refused(case, answer)
    elif case.get("object_key_order") == "unspecified" or expect.get("object_key_order") == "unspecified":
        assert json.loads(expect["body"]) == json.loads(answer.content)
    else:
        body = base64.b64decode(expect["body_b64"]) if "body_b64" in expect else expect["body"].encode()
        assert body == answer.content


def example_of(stubs: ServingStubs, features: dict[str, Any]) -> Any:
    example = stubs.classification.ClassificationRequest().input.example_list.examples.add()
    for name, feature in features.items():
        slot = example.features.feature[name]
        if feature["kind"]:
            values = [value_of(feature["kind"], value) for value in feature["values"]]
            getattr(slot, feature["kind"]).value.extend(values)
    return example


def value_of(kind: str, value: Any) -> Any:
    if kind == "bytes_list":
        return base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()
    return float(value) if kind == "float_list" else value


def example_from(stubs: ServingStubs, label: str) -> Any:
    """Return the tf.Example whose bytes a label holds, as base64 without padding."""
    example = stubs.classification.ClassificationRequest().input.example_list.examples.add()
    example.ParseFromString(base64.urlsafe_b64decode(label + "=" * (-len(label) % 4)))
    return example
