"""`POST /invocations` at the server of one model of a multi-model endpoint; the models are fakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.http_messages import Answer, Request
from pierhead.modelserver.monitoring import Monitoring
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries
from pierhead.modelserver.rest import RestDoor

BODY = b'{"instances": [2.0]}'
ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"
OWN = {"predictions": [3.0]}
OTHERS = {"predictions": [20.0]}


class Endpoint:
    """A door to `own`, version 1 and 2, and `other`, whose answers are ten times as large."""

    def __init__(self, monitoring: Monitoring | None = None) -> None:
        self.platform = FakePlatform()
        registry = Registry(self.platform, Retries())
        for name, version in (("own", 1), ("own", 2), ("other", 1)):
            registry.load(name, version, Path(name, str(version)))
        self.set_run(1, lambda inputs: {"y": inputs["x"] / 2 + 2})
        self.set_run(2, lambda inputs: {"y": inputs["x"] * 10})
        registry.replace_labels({"own": {"stable": 1}})
        plane = DataPlane(registry)
        self.door = RestDoor(plane, ProtobufCodec(), monitoring=monitoring, invocations_model="own")

    def set_run(self, place: int, function: Callable[[Mapping[str, Array]], dict[str, Array]]) -> None:
        self.platform.runtimes[place].functions["serving_default"] = function

    def post(self, header: str | None = None, body: bytes = BODY, target: str = "/invocations") -> Answer:
        headers = {} if header is None else {ATTRIBUTES: header}
        answer: Any = self.door.answer(Request("POST", target, headers, body))
        while not isinstance(answer, Answer):
            answer = answer()
        return answer


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, OWN),
        ("", OWN),
        ("c000=1", OWN),
        ("tfs-model-name=own", OWN),
        ("tfs-model-name=other", OTHERS),
        ("tfs-model-version=1", OWN),
        ("tfs-model-version-label=stable", OWN),
        ("tfs-method=predict, tfs-model-name = other", OTHERS),
    ],
)
def test_custom_attributes_choose_among_the_server_s_models(
    endpoint: Endpoint, header: str | None, expected: object
) -> None:
    answer = endpoint.post(header)

    assert (200, expected) == (answer.status, json.loads(answer.body))


def test_custom_attributes_choose_the_method(endpoint: Endpoint) -> None:
    answer = endpoint.post("tfs-method=classify", b'{"examples": [{"x": 1}]}')

    assert 400 == answer.status
    assert b"classification" in answer.body.lower()


@pytest.mark.parametrize(
    ("header", "status", "error"),
    [
        ("tfs-model-name=nobody", 404, "Servable not found for request: Latest(nobody)"),
        (
            "tfs-model-name=nobody,tfs-model-version=3",
            404,
            "Servable not found for request: Specific(nobody, 3)",
        ),
        ("tfs-model-version-label=new", 400, "Unrecognized servable version label: new"),
        (
            "tfs-model-name=nobody,tfs-model-version-label=stable",
            400,
            "Unrecognized servable version label: stable",
        ),
        (
            "tfs-model-version=1,tfs-model-version-label=stable",
            400,
            "custom attributes tfs-model-version and tfs-model-version-label exclude each other",
        ),
        (
            "tfs-method=explain",
            400,
            "custom attribute tfs-method='explain' must be one of predict, classify, regress",
        ),
    ],
)
def test_attributes_are_judged_before_the_body_as_by_the_handler_workers(
    endpoint: Endpoint, header: str, status: int, error: str
) -> None:
    answer = endpoint.post(header, b"no JSON")

    assert (status, {"error": error}) == (answer.status, json.loads(answer.body))


def test_body_is_judged_before_the_version(endpoint: Endpoint) -> None:
    assert 400 == endpoint.post("tfs-model-version=9", b"no JSON").status
    assert 404 == endpoint.post("tfs-model-version=9").status


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (ServingError(Code.RESOURCE_EXHAUSTED, "full"), 507),
        (MemoryError("Unable to allocate"), 507),
        (ServingError(Code.UNAVAILABLE, "away"), 503),
        (ServingError(Code.INTERNAL, "broken"), 500),
    ],
)
def test_failed_run_has_the_status_of_a_multi_model_endpoint(
    endpoint: Endpoint, problem: Exception, status: int
) -> None:
    def fail(_: Mapping[str, Array]) -> dict[str, Array]:
        raise problem

    endpoint.set_run(1, fail)
    answer = endpoint.post()

    assert (status, "application/json") == (answer.status, answer.content_type)
    assert json.loads(answer.body)["error"]


class HugeArray:
    """Stands for outputs whose text there is no room for."""

    @property
    def size(self) -> int:
        raise MemoryError

    def __getattr__(self, name: str) -> object:
        raise MemoryError


def test_answer_that_finds_no_memory_is_told_as_such(endpoint: Endpoint) -> None:
    huge: Any = HugeArray()
    endpoint.set_run(1, lambda _: {"y": huge})

    assert 507 == endpoint.post().status
    assert 429 == endpoint.post(target="/invocations/v1/models/own:predict").status
    assert 429 == endpoint.post(target="/v1/models/own:predict").status


def test_only_this_path_and_method_is_an_invocation(endpoint: Endpoint) -> None:
    assert 405 == endpoint.door.answer(Request("GET", "/invocations")).status  # type: ignore[union-attr]
    assert 404 == endpoint.post(target="/invocationsx").status


def test_without_a_model_there_is_nothing_at_the_path() -> None:
    registry = Registry(FakePlatform(), Retries())
    answer = RestDoor(DataPlane(registry), ProtobufCodec()).answer(Request("POST", "/invocations"))

    assert (404, "text/html") == (answer.status, answer.content_type)  # type: ignore[union-attr]


def test_invocations_are_counted_by_the_model_that_was_asked() -> None:
    monitoring = Monitoring()
    endpoint = Endpoint(monitoring)
    endpoint.post()
    endpoint.post("tfs-model-name=other")
    page = monitoring.metrics.page().decode()

    assert 'model_name="own",status="OK"} 1' in page
    assert 'model_name="other",status="OK"} 1' in page
