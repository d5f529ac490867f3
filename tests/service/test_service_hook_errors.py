from __future__ import annotations

import logging
from typing import Any

import flask
import grpc
import pytest
from tests.service.service_fakes import FakeBackend, make_plan
from werkzeug.datastructures import Headers
from werkzeug.exceptions import NotFound

from pierhead.errors import Code, ServingError
from pierhead.hooks import HookError
from pierhead.service.app import create_app
from pierhead.service.hook_handlers import PairHandler, WholeHandler
from pierhead.service.hooks import HookPair, WholeHook
from pierhead.settings import Settings


class ToolkitError(Exception):
    """Has the attributes of the inference toolkit's exceptions."""

    def __init__(self, status_code: Any, message: str, phrase: str) -> None:
        super().__init__(status_code, message, phrase)
        self.status_code, self.message, self.phrase = status_code, message, phrase


class CallError(grpc.RpcError):
    """Has the methods of the error of a grpc call."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


def answer(problem: BaseException) -> tuple[int, str]:
    def handler(data: Any, context: Any) -> Any:
        raise problem

    app = create_app(make_plan(), Settings.from_env({}), FakeBackend(), WholeHandler(WholeHook(handler)))
    answered = app.test_client().post("/invocations", data=b"")
    return answered.status_code, answered.get_json()["error"]


@pytest.mark.parametrize(
    ("problem", "status", "message"),
    [
        (HookError("no"), 400, "no"),
        (HookError("later", 503), 503, "later"),
        (HookError("größer als π", status=422), 422, "größer als π"),
        (ToolkitError(415, "no reader", "Unsupported Media Type"), 415, "no reader"),
        (ToolkitError("415", "no reader", "Unsupported Media Type"), 500, "('415', 'no reader', 'Unsuppor"),
        (ToolkitError(200, "fine", "OK"), 500, "(200, 'fine', 'OK')"),
        (NotFound("no such thing"), 404, "no such thing"),
        (CallError(grpc.StatusCode.INVALID_ARGUMENT, "ill"), 400, "ill"),
        (CallError(grpc.StatusCode.UNAVAILABLE, "ipv4:127.0.0.1:9000"), 503, "a server that the hook called"),
    ],
)
def test_exceptions_carry_their_status(problem: BaseException, status: int, message: str) -> None:
    found, sentence = answer(problem)

    assert status == found
    assert sentence.startswith(message)


def test_flasks_abort_works_in_a_hook() -> None:
    def handler(data: Any, context: Any) -> Any:
        flask.abort(409, "twice")

    app = create_app(make_plan(), Settings.from_env({}), FakeBackend(), WholeHandler(WholeHook(handler)))
    answered = app.test_client().post("/invocations", data=b"")

    assert (answered.status_code, answered.get_json()) == (409, {"error": "twice"})


def test_missing_header_is_a_key_error_and_not_a_bad_request() -> None:
    def handler(data: Any, context: Any) -> Any:
        return Headers()["X-Tenant"]

    app = create_app(make_plan(), Settings.from_env({}), FakeBackend(), WholeHandler(WholeHook(handler)))
    answered = app.test_client().post("/invocations", data=b"")

    assert (answered.status_code, answered.get_json()) == (500, {"error": "KeyError: 'X-Tenant'"})


@pytest.mark.parametrize("status", [200, 399, 600, "400", 400.0, True, None])
def test_status_of_a_hook_error_is_an_error_status(status: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number from 400 to 599"):
        HookError("no", status)


def test_chosen_status_below_500_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer(HookError("no", 404))

    assert caplog.records == []


def test_chosen_status_from_500_on_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    answer(HookError("later", 503))

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    text = record.getMessage()
    assert text.count("Traceback") == 1
    assert "in handler" in text
    assert "flask" not in text
    assert "hook_handlers.py" not in text


def test_chosen_status_wins_over_the_model_servers() -> None:
    def output_handler(response: Any, context: Any) -> Any:
        raise HookError(f"the model said {response.status_code}", 418)

    backend = FakeBackend(ServingError(Code.NOT_FOUND, "none"))
    handler = PairHandler(HookPair(lambda data, _: data.read(), output_handler), backend)
    app = create_app(make_plan(), Settings.from_env({}), backend, handler)
    answered = app.test_client().post("/invocations", data=b'{"instances": [1]}')

    assert (answered.status_code, answered.get_json()) == (418, {"error": "the model said 404"})
