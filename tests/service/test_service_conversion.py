"""read_request and write_answer as hooks give what requests without hooks get."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import pytest
from flask.testing import FlaskClient
from tests.service.service_fakes import FakeBackend, make_plan

from pierhead.errors import Code, ServingError
from pierhead.formats.predict_json import Layout
from pierhead.hooks import Context, ModelRequest, ModelResponse, read_request, write_answer
from pierhead.service.app import Handler, create_app
from pierhead.service.backend import RestAnswer
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.hook_handlers import PairHandler
from pierhead.service.hooks import HookPair
from pierhead.settings import Settings

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
ROWS = b'{"instances": [1.0, 2.0, 5.0]}'
REST = RestAnswer(200, "application/json", b'{"predictions": [2.5, 3.0]}')
REFUSED = RestAnswer(400, "application/json", b'{"error": "no"}')


def npy(*values: float) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(values, np.float32))
    return stream.getvalue()


def client(handler: Handler, backend: FakeBackend, **settings: str) -> FlaskClient:
    return create_app(make_plan(), Settings.from_env(settings), backend, handler).test_client()


def without_hooks(backend: FakeBackend, *, default_accept: str = "application/json") -> FlaskClient:
    handler = DefaultHandler(backend, default_accept, 1 << 30)
    return client(handler, backend, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT=default_accept)


def with_hooks(
    backend: FakeBackend,
    input_handler: Callable[..., Any] = read_request,
    output_handler: Callable[..., Any] = write_answer,
    *,
    default_accept: str = "application/json",
) -> FlaskClient:
    handler = PairHandler(HookPair(input_handler, output_handler), backend)
    return client(handler, backend, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT=default_accept)


@pytest.mark.parametrize("default_accept", ["application/json", "text/csv"])
@pytest.mark.parametrize("accept", ["", "text/csv", "application/jsonlines", "text/*;q=0.5", "image/png"])
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", ROWS),
        ("application/json; charset=utf-8", b'{"inputs": [1.0, 2.0]}'),
        ("application/json", b"[1.0, 2.0]"),
        ("application/json", b'{"signature_name": "nope", "instances": [1.0]}'),
        ("application/json", b'{"instances": ["one"]}'),
        ("application/json", b"{"),
        ("application/jsonlines", b"1.0\n2.0\n"),
        ("text/csv", b"1.0\n2.0\n"),
        ("application/x-npy", npy(1, 2)),
    ],
)
def test_conversion_as_hooks_answers_as_without_hooks(
    content_type: str, body: bytes, accept: str, default_accept: str
) -> None:
    headers = {"Content-Type": content_type, "Accept": accept}
    bare = without_hooks(FakeBackend(), default_accept=default_accept)
    hooked = with_hooks(FakeBackend(), default_accept=default_accept)

    expected = bare.post("/invocations", data=body, headers=headers)
    actual = hooked.post("/invocations", data=body, headers=headers)

    if expected.status_code == 406 and actual.status_code == 400:
        return  # of a request that is wrong in both ways, hooks see the body first
    assert (expected.status_code, expected.content_type, expected.data) == (
        actual.status_code,
        actual.content_type,
        actual.data,
    )


@pytest.mark.parametrize(
    ("backend", "headers"),
    [
        (FakeBackend(ServingError(Code.RESOURCE_EXHAUSTED, "full")), {}),
        (FakeBackend(rest=REST), {"Accept": "text/csv"}),
        (FakeBackend(rest=REST), {}),
        (FakeBackend(rest=REFUSED), {}),
        (FakeBackend(rest=REST), {ATTRIBUTES: "tfs-method=classify"}),
        (FakeBackend(), {"Content-Type": "a/b"}),
    ],
)
def test_refusals_and_rest_answers_pass_as_without_hooks(
    backend: FakeBackend, headers: dict[str, str]
) -> None:
    expected = without_hooks(backend).post("/invocations", data=ROWS, headers=headers)
    actual = with_hooks(backend).post("/invocations", data=ROWS, headers=headers)

    assert (expected.status_code, expected.content_type, expected.data) == (
        actual.status_code,
        actual.content_type,
        actual.data,
    )


def looked_at(body: bytes, content_type: str, **headers: str) -> ModelRequest:
    """Return the request that input_handler was given."""
    seen: list[ModelRequest] = []

    def input_handler(data: IO[bytes], context: Context) -> Any:
        seen.append(read_request(data, context))
        seen[0].values  # noqa: B018 - read while there is a request
        return seen[0]

    served = with_hooks(FakeBackend(), input_handler)
    served.post("/invocations", data=body, headers={"Content-Type": content_type, **headers})
    return seen[0]


def test_request_is_python_values_and_arrays() -> None:
    request = looked_at(b"1.0\n2.0\n", "text/csv")

    assert {"instances": [1.0, 2.0]} == request.values
    assert ["x"] == list(request.arrays)
    assert np.float32 == request.arrays["x"].dtype
    assert [1.0, 2.0] == request.arrays["x"].tolist()
    assert request.layout is Layout.ROW
    assert request.signature_name == ""


def test_values_of_numpys_files_are_those_of_the_arrays() -> None:
    assert {"inputs": {"x": [1.0, 2.0]}} == looked_at(npy(1, 2), "application/x-npy").values


def test_classify_request_has_values_and_no_arrays() -> None:
    request = looked_at(
        b'{"examples": [{"x": 1}]}', "application/json", **{ATTRIBUTES: "tfs-method=classify"}
    )

    assert {"examples": [{"x": 1}]} == request.values
    with pytest.raises(ValueError, match="a classify request has no arrays"):
        request.arrays  # noqa: B018


def test_changed_arrays_are_sent_in_the_signatures_dtype() -> None:
    def doubled(data: IO[bytes], context: Context) -> ModelRequest:
        request = read_request(data, context)
        request.arrays["x"] = request.arrays["x"].astype(np.float64) * 2
        return request

    backend = FakeBackend()
    answer = with_hooks(backend, doubled).post("/invocations", data=ROWS)

    assert {"predictions": [3.0, 4.0, 7.0]} == answer.get_json()
    assert np.float32 == backend.inputs[0]["x"].dtype


def test_outputs_of_ones_own_are_written_in_the_callers_layout_and_type() -> None:
    def renamed(response: ModelResponse, context: Context) -> Any:
        return write_answer(response, context, outputs={"labels": ["low", "high", "higher"]})

    served = with_hooks(FakeBackend(), output_handler=renamed)

    assert {"predictions": ["low", "high", "higher"]} == served.post("/invocations", data=ROWS).get_json()
    in_csv = served.post("/invocations", data=ROWS, headers={"Accept": "text/csv"})
    assert in_csv.data == b"low\nhigh\nhigher\n"
