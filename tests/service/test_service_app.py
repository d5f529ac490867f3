from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import IO, Any

import gevent
import numpy as np
import pytest
from flask.testing import FlaskClient
from tests.service.service_fakes import FakeBackend, make_plan

from pierhead.errors import (
    Code,
    ModelServerAway,
    NotAcceptable,
    ServingError,
    UnsupportedMediaType,
    UserCodeError,
)
from pierhead.logs import current_request_id
from pierhead.service.answers import Answer
from pierhead.service.app import Handler, Router, Service, create_app, create_models_app
from pierhead.service.call import Call
from pierhead.service.context import Context
from pierhead.service.hook_errors import HookError
from pierhead.service.hook_handlers import PairHandler, WholeHandler
from pierhead.service.hooks import HookPair, WholeHook
from pierhead.settings import Settings

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
BODY = b'{"instances": [1.0, 2.0, 5.0]}'


def client(handler: Handler, backend: FakeBackend | None = None) -> FlaskClient:
    settings = Settings.from_env({})
    return create_app(make_plan(), settings, backend or FakeBackend(), handler).test_client()


def whole(hook: Callable[[Any, Any], Any]) -> FlaskClient:
    return client(WholeHandler(WholeHook(hook)))


def read(data: IO[bytes], context: Context) -> Any:
    return data.read()


def pair(
    backend: FakeBackend,
    input_handler: Callable[[Any, Any], Any] = read,
    output_handler: Callable[[Any, Any], Any] = lambda response, _: (response.content, "application/json"),
) -> FlaskClient:
    return client(PairHandler(HookPair(input_handler, output_handler), backend), backend)


def refuse(problem: Exception) -> Handler:
    def handler(data: IO[bytes], call: Call, context: Context) -> Answer:
        raise problem

    return handler


def checked(response: Any, context: Context) -> Any:
    """Do what the documented output_handler does."""
    if response.status_code != 200:
        raise ValueError(response.content.decode())
    return response.content, context.accept_header


def test_ping_is_empty_and_ok() -> None:
    answer = whole(lambda *_: b"").get("/ping")

    assert (answer.status_code, answer.data) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", "/invocations", 405), ("DELETE", "/ping", 405)],
)
def test_unknown_routes_are_refused_in_json(method: str, path: str, status: int) -> None:
    answer = whole(lambda *_: b"").open(path, method=method)

    assert status == answer.status_code
    assert answer.content_type == "application/json"
    assert answer.get_json()["error"]
    assert ("Allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (UnsupportedMediaType("no reader for a/b"), 415),
        (NotAcceptable("no writer for a/b"), 406),
        (ServingError(Code.INVALID_ARGUMENT, "ill"), 400),
        (ServingError(Code.RESOURCE_EXHAUSTED, "full"), 429),
        (ServingError(Code.UNAVAILABLE, "gone"), 503),
        (ModelServerAway(), 502),
    ],
)
def test_each_exception_has_its_status(problem: Exception, status: int) -> None:
    answer = client(refuse(problem)).post("/invocations", data=BODY)

    assert status == answer.status_code
    assert {"error": str(problem)} == answer.get_json()


def test_our_own_failure_does_not_tell_its_inside(caplog: pytest.LogCaptureFixture) -> None:
    answer = client(refuse(ZeroDivisionError("inside"))).post("/invocations", data=BODY)

    assert answer.status_code == 500
    assert "inside" not in answer.text
    assert "ZeroDivisionError: inside" in caplog.text


@pytest.mark.parametrize(("sent", "named"), [("0a1b", "0a1b"), ("a b", ""), ("a\u00e9", ""), ("", "")])
def test_hook_runs_in_the_name_of_its_request(sent: str, named: str) -> None:
    answer = whole(lambda *_: current_request_id()).post(
        "/invocations", headers={"X-Request-Id": sent}, buffered=True
    )

    assert named == answer.text
    assert "X-Request-Id" not in answer.headers, "nginx alone writes it"
    assert current_request_id() == ""


def test_streamed_parts_are_made_in_the_name_of_their_request() -> None:
    def hook(*_: Any) -> Any:
        return (current_request_id() for _ in range(3)), "text/plain"

    answer = whole(hook).post("/invocations", headers={"X-Request-Id": "5"}, buffered=True)

    assert answer.text == "555"
    assert current_request_id() == ""


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", ("a", None, "predict")),
        ("tfs-model-name=b", ("b", None, "predict")),
        (" tfs-model-name = b ", ("b", None, "predict")),
        ("tfs-model-name=b,tfs-model-version=1", ("b", 1, "predict")),
        ("foo,=,a=b=c", ("a", None, "predict")),
    ],
)
def test_attributes_route_the_request(attributes: str, expected: tuple[str, int | None, str]) -> None:
    backend = FakeBackend()

    answer = pair(backend).post("/invocations", data=BODY, headers={ATTRIBUTES: attributes})

    assert answer.status_code == 200
    assert [expected] == backend.calls


@pytest.mark.parametrize(
    ("attributes", "status", "message"),
    [
        ("tfs-model-name=nope", 404, "Servable not found for request: Latest(nope)"),
        (
            "tfs-model-name=nope,tfs-model-version=3",
            404,
            "Servable not found for request: Specific(nope, 3)",
        ),
        ("tfs-method=delete", 400, "custom attribute tfs-method='delete' must be one of predict"),
    ],
)
def test_attributes_that_lead_nowhere_are_refused(attributes: str, status: int, message: str) -> None:
    answer = whole(lambda *_: b"").post("/invocations", data=BODY, headers={ATTRIBUTES: attributes})

    assert status == answer.status_code
    assert answer.get_json()["error"].startswith(message)


def test_handler_gets_an_unread_stream_and_its_context() -> None:
    def handler(data: IO[bytes], context: Context) -> Any:
        first = data.read(4)
        return json.dumps(
            [
                first.decode(),
                data.read().decode(),
                context.custom_attributes,
                context.accept_header,
                context.model_version,
                context.timeout,
            ]
        ), "application/json"

    answer = whole(handler).post(
        "/invocations", data=b"abcdefg", headers={ATTRIBUTES: "threshold=0.7", "Accept": "text/plain"}
    )

    assert answer.get_json() == [
        "abcd",
        "efg",
        "threshold=0.7",
        "text/plain",
        "2",
        float(Settings.from_env({}).work_timeout_seconds),
    ]


@pytest.mark.parametrize(
    ("result", "accept", "body", "content_type"),
    [
        (("hé", "text/html; charset=utf-8"), "*/*", "hé".encode(), "text/html; charset=utf-8"),
        ((b"\x00", "image/png"), "*/*", b"\x00", "image/png"),
        ("bare", "*/*", b"bare", "application/json"),
        (b"bare", "text/csv", b"bare", "text/csv"),
        (bytearray(b"bare"), "", b"bare", "application/json"),
        (("x", None), "text/csv;q=0.9, */*", b"x", "text/csv"),
        (("x", "*/*"), "", b"x", "application/json"),
        (("x", "application/json, application/jsonlines"), "", b"x", "application/json"),
    ],
)
def test_result_of_a_hook_becomes_the_answer(
    result: Any, accept: str, body: bytes, content_type: str
) -> None:
    answer = whole(lambda *_: result).post("/invocations", data=BODY, headers={"Accept": accept})

    assert (200, body) == (answer.status_code, answer.data)
    assert content_type == answer.headers["Content-Type"]
    assert str(len(body)) == answer.headers["Content-Length"]


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (None, "handler returned None"),
        (("a", "b", "c"), "handler returned a tuple of 3 values"),
        ((), "handler returned a tuple of 0 values"),
        ({"a": 1}, "handler returned a value of type dict"),
        ((None, "text/csv"), "handler returned a body of type NoneType"),
        (("a", 3), "handler returned the content type 3"),
        (("a", "text/csv\r\nX: y"), "handler returned the content type 'text/csv"),
    ],
)
def test_result_that_cannot_be_sent_is_named(result: Any, found: str) -> None:
    answer = whole(lambda *_: result).post("/invocations", data=BODY)

    assert answer.status_code == 500
    assert answer.get_json()["error"].startswith(found)
    assert "wanted is (body, content_type)" in answer.get_json()["error"]


def test_text_that_is_no_text_is_named() -> None:
    answer = whole(lambda *_: "\ud800").post("/invocations", data=BODY)

    assert answer.status_code == 500
    assert answer.get_json()["error"].startswith("handler returned text that cannot be UTF-8")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (ValueError("bad field x"), "bad field x"),
        (ValueError("größer als π"), "größer als π"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit("left"), "left"),
        (gevent.Timeout(0.5), "0.5 seconds"),
    ],
)
def test_exception_of_a_hook_is_500_with_its_message(
    problem: BaseException, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(data: Any, context: Any) -> Any:
        raise problem

    answer = whole(handler).post("/invocations", data=BODY)

    assert answer.status_code == 500
    assert {"error": message} == answer.get_json()
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(records) == 1
    assert "Traceback" in records[0].getMessage()
    assert "hook_handlers.py" not in caplog.text


def test_next_request_works_after_a_failure() -> None:
    served = whole(lambda data, _: data.read().decode("ascii"))

    assert served.post("/invocations", data=b"\xff").status_code == 500
    assert served.post("/invocations", data=b"ok").data == b"ok"


def test_pair_sends_json_to_the_model_as_tensors() -> None:
    backend = FakeBackend()

    answer = pair(backend).post("/invocations", data=BODY)

    assert answer.get_json() == {"predictions": [2.5, 3.0, 4.5]}
    assert backend.inputs[0]["x"].dtype == np.float32


@pytest.mark.parametrize(
    "value",
    [
        [1.0, 2.0, 5.0],
        np.array([1.0, 2.0, 5.0]),
        np.array([1, 2, 5], np.int8),
        np.array([1, 2, 5], np.float32),
    ],
)
def test_pair_sends_arrays_in_the_signatures_dtype(value: Any) -> None:
    backend = FakeBackend()

    answer = pair(backend, lambda *_: {"x": value}).post("/invocations", data=b"")

    assert answer.get_json() == {"outputs": [2.5, 3.0, 4.5]}
    assert backend.inputs[0]["x"].dtype == np.float32


def test_outputs_reach_the_output_handler_as_arrays() -> None:
    served = pair(FakeBackend(), read, lambda response, _: (str(response.outputs["y"].sum()), "text/plain"))

    assert served.post("/invocations", data=BODY).data == b"10.0"


@pytest.mark.parametrize(
    ("body", "refusal", "status", "message"),
    [
        (BODY, ServingError(Code.NOT_FOUND, "Servable not found"), 404, "Servable not found"),
        (BODY, ServingError(Code.UNAVAILABLE, "gone"), 503, "gone"),
        (BODY, ModelServerAway(), 502, "the model server is away"),
        (b"", None, 400, "JSON Parse error: The document is empty"),
        (b"{}", None, 400, "Missing 'inputs' or 'instances' key"),
        (b'{"signature_name": "s", "instances": [1]}', None, 400, 'Serving signature name: "s" not found'),
    ],
)
@pytest.mark.parametrize("output_handler", [checked, lambda *_: None])
def test_refusal_of_the_model_outlives_the_output_handler(
    body: bytes, refusal: ServingError | None, status: int, message: str, output_handler: Any
) -> None:
    served = pair(FakeBackend(refusal), read, output_handler)

    answer = served.post("/invocations", data=body)

    assert status == answer.status_code
    assert answer.get_json()["error"].startswith(message)


def test_output_handler_may_answer_a_refusal_itself() -> None:
    served = pair(
        FakeBackend(ServingError(Code.NOT_FOUND, "none")),
        read,
        lambda response, _: (f"{response.status_code} {response.json()['error']}", "text/plain"),
    )

    answer = served.post("/invocations", data=BODY)

    assert (answer.status_code, answer.data) == (200, b"404 none")


def test_output_handler_that_fails_after_a_success_is_500() -> None:
    def output_handler(response: Any, context: Context) -> Any:
        raise ValueError("after the model")

    answer = pair(FakeBackend(), read, output_handler).post("/invocations", data=BODY)

    assert (answer.status_code, answer.get_json()) == (500, {"error": "after the model"})


@pytest.mark.parametrize(("result", "found"), [(None, "None"), (3, "a value of type int")])
def test_input_handler_must_return_a_request(result: Any, found: str) -> None:
    answer = pair(FakeBackend(), lambda *_: result).post("/invocations", data=BODY)

    assert answer.status_code == 500
    assert answer.get_json()["error"].startswith(f"input_handler returned {found}; wanted is")


MULTI_MODEL = Settings.from_env({"SAGEMAKER_MULTI_MODEL": "true"})


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (ServingError(Code.RESOURCE_EXHAUSTED, "full"), 507),
        (ServingError(Code.UNAVAILABLE, "gone"), 503),
        (ModelServerAway(), 503),
        (UnsupportedMediaType("no reader for a/b"), 415),
        (HookError("too many of yours", 429), 429),
        (UserCodeError("failed"), 500),
    ],
)
def test_statuses_at_a_multi_model_endpoint_are_those_that_the_platform_acts_on(
    problem: Exception, status: int
) -> None:
    app = create_app(make_plan(), MULTI_MODEL, FakeBackend(), refuse(problem))

    answer = app.test_client().post("/invocations", data=BODY)

    assert status == answer.status_code
    assert {"error": str(problem)} == answer.get_json()


def test_output_handler_sees_507_at_a_multi_model_endpoint() -> None:
    backend = FakeBackend(ServingError(Code.RESOURCE_EXHAUSTED, "full"))
    seen: list[int] = []

    def output_handler(response: Any, context: Context) -> Any:
        seen.append(response.status_code)
        return checked(response, context)

    handler = PairHandler(HookPair(read, output_handler), backend, multi_model=True)
    answer = (
        create_app(make_plan(), MULTI_MODEL, backend, handler).test_client().post("/invocations", data=BODY)
    )

    assert [507] == seen
    assert (507, {"error": "full"}) == (answer.status_code, answer.get_json())


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "PUT", "DELETE"])
def test_models_are_invoked_by_post_alone(method: str) -> None:
    app = create_models_app(MULTI_MODEL, lambda _: pytest.fail("nothing is looked for"))

    answer = app.test_client().open("/models/a/invoke", method=method)

    assert (405, "POST") == (answer.status_code, answer.headers["Allow"])
    assert answer.get_json()["error"]


@pytest.mark.parametrize(("is_loaded", "status"), [(True, 503), (False, 404)])
def test_model_whose_servers_went_with_it_is_not_loaded(is_loaded: bool, status: int) -> None:
    backend, names = FakeBackend(), {"a"}

    def ask_away(data: IO[bytes], call: Call, context: Context) -> Answer:
        if not is_loaded:
            names.discard("a")
        raise ModelServerAway

    def find(name: str) -> Service:
        if name not in names:
            raise ServingError(Code.NOT_FOUND, "not loaded")
        return Service(Router(make_plan(), MULTI_MODEL, backend), ask_away)

    answer = create_models_app(MULTI_MODEL, find).test_client().post("/models/a/invoke", data=BODY)

    assert status == answer.status_code
