"""The workers' HTTP: one Flask app, and the one table from exceptions to statuses.

Every error is `application/json` with `{"error": sentence}`. Source: the design's section on errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import IO

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from pierhead.contract.headers import CUSTOM_ATTRIBUTES, REQUEST_ID
from pierhead.contract.status import HTTP_STATUS
from pierhead.control import ServicePlan
from pierhead.errors import (
    Code,
    NotAcceptable,
    PierheadError,
    ServingError,
    UnsupportedMediaType,
    UserCodeError,
)
from pierhead.formats.predict_json import render_error
from pierhead.service.answers import JSON, Answer
from pierhead.service.attributes import Attributes, parse_attributes
from pierhead.service.backend import Backend
from pierhead.service.call import Call
from pierhead.service.context import Context, describe_request
from pierhead.service.user_code import explain_failure
from pierhead.settings import Settings

__all__ = ["Handler", "create_app"]

log = logging.getLogger(__name__)

Handler = Callable[[IO[bytes], Call, Context], Answer]
STATUSES: Mapping[type[PierheadError], int] = MappingProxyType(
    {UnsupportedMediaType: 415, NotAcceptable: 406, UserCodeError: 500}
)
FAILURE = 500


def create_app(plan: ServicePlan, settings: Settings, backend: Backend, handler: Handler) -> Flask:
    """Return the app that answers `POST /invocations` with `handler`, and `GET /ping` while it is alive."""
    app = Flask(__name__, static_folder=None)
    router = Router(plan, settings, backend)

    @app.post("/invocations")
    def invoke() -> Response:
        call = router.call(parse_attributes(request.headers.get(CUSTOM_ATTRIBUTES, "")))
        return _respond(handler(request.stream, call, router.context(call)))

    @app.get("/ping")
    def ping() -> Response:
        return _respond(Answer(b""))

    app.after_request(_echo_request_id)
    app.register_error_handler(Exception, _answer_exception)
    app.register_error_handler(HTTPException, _answer_http_exception)
    return app


class Router:
    """Finds the model, version and server of a request."""

    def __init__(self, plan: ServicePlan, settings: Settings, backend: Backend) -> None:
        self._default_model = plan.default_model
        self._names = frozenset(model.name for model in plan.models)
        self._backend = backend
        self._timeout = float(settings.gunicorn_timeout_seconds)
        self._default_accept = settings.default_accept

    def call(self, attributes: Attributes) -> Call:
        """Return the way to the model that is asked for; raise ServingError (NOT_FOUND) without one."""
        model = attributes.model or self._default_model
        if model not in self._names:
            raise ServingError(Code.NOT_FOUND, _describe_missing(model, attributes.version))
        return Call(model, attributes.version, attributes.method, self._backend.next_server(), self._timeout)

    def context(self, call: Call) -> Context:
        """Return what the hooks are told about the request at hand."""
        return describe_request(
            call,
            request.headers,
            served_version=self._backend.served_version(call.model, call.version),
            channel=self._backend.channel(call.server),
            default_accept=self._default_accept,
        )


def _describe_missing(model: str, version: int | None) -> str:
    """Return the model server's own sentence for a model that it does not serve."""
    servable = f"Latest({model})" if version is None else f"Specific({model}, {version})"
    return f"Servable not found for request: {servable}"


def _respond(answer: Answer) -> Response:
    return Response(answer.body, answer.status, content_type=answer.content_type)


def _echo_request_id(response: Response) -> Response:
    if REQUEST_ID in request.headers:
        response.headers[REQUEST_ID] = request.headers[REQUEST_ID]
    return response


def _answer_http_exception(problem: HTTPException) -> Response:
    status = problem.code or FAILURE
    response = _respond(Answer(render_error(problem.description or problem.name), JSON, status))
    for name, value in problem.get_headers():
        if name not in {"Content-Type", "Content-Length"}:
            response.headers[name] = value
    return response


def _answer_exception(problem: Exception) -> Response:
    _log_exception(problem)
    message = str(problem) if isinstance(problem, PierheadError) else "the handler failed; its log says why"
    return _respond(Answer(render_error(message), JSON, _status(problem)))


def _status(problem: Exception) -> int:
    if isinstance(problem, ServingError):
        return HTTP_STATUS[problem.code]
    return next((status for kind, status in STATUSES.items() if isinstance(problem, kind)), FAILURE)


def _log_exception(problem: Exception) -> None:
    """Log what the user or we must repair; refusals are the caller's affair and not logged."""
    if isinstance(problem, UserCodeError):
        log.error("inference.py failed: request=%s %s", _request_id(), explain_failure(problem))
    elif not isinstance(problem, PierheadError):
        log.error("request failed: request=%s path=%s", _request_id(), request.path, exc_info=problem)


def _request_id() -> str:
    return request.headers.get(REQUEST_ID, "-")
