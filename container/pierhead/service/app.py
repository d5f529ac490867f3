"""The workers' HTTP: one Flask app, in which every exception becomes an answer.

Every error is `application/json` with `{"error": sentence}`. Source: the design's section on errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import IO

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from pierhead.contract.attributes import Attributes, parse_attributes
from pierhead.contract.headers import CUSTOM_ATTRIBUTES
from pierhead.contract.status import FAILURE, status_of
from pierhead.control import ServicePlan
from pierhead.errors import (
    Code,
    ModelServerAway,
    PierheadError,
    ServingError,
    UserCodeError,
)
from pierhead.formats.predict_json import render_error
from pierhead.service.answers import JSON, Answer
from pierhead.service.backend import Backend
from pierhead.service.bodies import whole_bodies
from pierhead.service.call import Call
from pierhead.service.context import Context, describe_request
from pierhead.service.encoded_bodies import decode_body
from pierhead.service.hook_errors import HookError
from pierhead.service.named_requests import named_requests
from pierhead.service.streaming import StreamedBody
from pierhead.service.user_code import explain_failure
from pierhead.settings import Settings

__all__ = ["Handler", "Router", "Service", "create_app", "create_models_app"]

log = logging.getLogger(__name__)

Handler = Callable[[IO[bytes], Call, Context], Answer]


@dataclass(frozen=True)
class Service:
    """What answers the invocations of a model: the way to it, and what stands before it."""

    router: Router
    handler: Handler

    def answer(self) -> Answer:
        """Return the answer to the request at hand; raise what it is refused with."""
        call = self.router.call(parse_attributes(request.headers.get(CUSTOM_ATTRIBUTES, "")))
        return self.handler(request.stream, call, self.router.context(call))


def create_app(plan: ServicePlan, settings: Settings, backend: Backend, handler: Handler) -> Flask:
    """Return the app that answers `POST /invocations` with `handler`, and `GET /ping` while it is alive."""
    app = _create_bare_app(settings)
    service = Service(Router(plan, settings, backend), handler)

    @app.post("/invocations")
    def invoke() -> Response:
        return _respond(service.answer())

    return app


def create_models_app(settings: Settings, find: Callable[[str], Service]) -> Flask:
    """Return the app that answers `POST /models/NAME/invoke`, each with the service that `find` returns.

    That raises ServingError where there is none.
    """
    app = _create_bare_app(settings)

    @app.post("/models/<path:name>/invoke", provide_automatic_options=False)
    def invoke(name: str) -> Response:
        service = find(name)
        try:
            return _respond(service.answer())
        except ModelServerAway:
            # Its servers end when the model is unloaded, which is then what to say.
            find(name)
            raise

    return app


def _create_bare_app(settings: Settings) -> Flask:
    app = Flask(__name__, static_folder=None)
    # A path is answered as it is, and never with a redirection.
    app.url_map.merge_slashes = False

    @app.get("/ping")
    def ping() -> Response:
        return _respond(Answer(b""))

    app.before_request(lambda: decode_body(request.environ, settings.max_decompressed_mb << 20))
    # Flask has it so: the app is what the outermost middleware makes of it.
    app.wsgi_app = named_requests(whole_bodies(app.wsgi_app))  # type: ignore[assignment, method-assign]
    answer = partial(_answer_exception, multi_model=settings.multi_model)
    app.register_error_handler(Exception, answer)
    app.register_error_handler(HTTPException, _answer_http_exception)
    return app


class Router:
    """Finds the model, version and server of a request."""

    def __init__(self, plan: ServicePlan, settings: Settings, backend: Backend) -> None:
        self._default_model = plan.default_model
        self._labels = {
            model.name: settings.version_labels.of_model(model.name, plan.default_model)
            for model in plan.models
        }
        self._backend = backend
        self._timeout = float(settings.work_timeout_seconds)
        self._default_accept = settings.default_accept
        self._max_decompressed_bytes = settings.max_decompressed_mb << 20

    def call(self, attributes: Attributes) -> Call:
        """Return the way to the model that is asked for; raise ServingError where there is none.

        The codes are the model server's: INVALID_ARGUMENT for an unknown label, also of an unknown model,
        else NOT_FOUND.
        """
        model, label = attributes.model or self._default_model, attributes.label
        if label is not None and label not in self._labels.get(model, {}):
            raise ServingError(Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}")
        if model not in self._labels:
            raise ServingError(Code.NOT_FOUND, _describe_missing(model, attributes.version))
        server = self._backend.next_server()
        return Call(model, attributes.version, attributes.method, server, self._timeout, label)

    def context(self, call: Call) -> Context:
        """Return what the hooks are told about the request at hand."""
        return describe_request(
            call,
            request.headers,
            served_version=self._served_version(call),
            channel=self._backend.channel(call.server),
            signature=partial(self._backend.signature, call),
            default_accept=self._default_accept,
            max_decompressed_bytes=self._max_decompressed_bytes,
        )

    def _served_version(self, call: Call) -> int | None:
        if call.label is not None:
            return self._labels[call.model][call.label]
        return self._backend.served_version(call.model, call.version)


def _describe_missing(model: str, version: int | None) -> str:
    """Return the model server's own sentence for a model that it does not serve."""
    servable = f"Latest({model})" if version is None else f"Specific({model}, {version})"
    return f"Servable not found for request: {servable}"


def _respond(answer: Answer) -> Response:
    stream = StreamedBody.of(answer)
    response = Response(stream or answer.body, answer.status, content_type=answer.content_type)
    if stream is not None:
        # nginx would collect the parts before it sends them on.
        response.headers["X-Accel-Buffering"] = "no"
    return response


def _answer_http_exception(problem: HTTPException) -> Response:
    status = problem.code or FAILURE
    response = _respond(Answer(render_error(problem.description or problem.name), JSON, status))
    for name, value in problem.get_headers():
        if name not in {"Content-Type", "Content-Length"}:
            response.headers[name] = value
    return response


def _answer_exception(problem: Exception, *, multi_model: bool) -> Response:
    _log_exception(problem)
    message = str(problem) if isinstance(problem, PierheadError) else "the handler failed; its log says why"
    return _respond(Answer(render_error(message), JSON, _status(problem, multi_model=multi_model)))


def _status(problem: Exception, *, multi_model: bool = False) -> int:
    if isinstance(problem, HookError):
        return problem.status
    if isinstance(problem, PierheadError):
        return status_of(problem, multi_model=multi_model)
    return FAILURE


def _log_exception(problem: Exception) -> None:
    """Log what the user or we must repair; refusals are the caller's affair and not logged."""
    if isinstance(problem, UserCodeError) and _status(problem) >= FAILURE:
        log.error("inference.py failed: %s", explain_failure(problem))
    elif not isinstance(problem, PierheadError):
        log.error("request failed: path=%s", request.path, exc_info=problem)
