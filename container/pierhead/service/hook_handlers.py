"""Requests with hooks: the user's functions, called with what they are promised.

A hook that raises after the model server has refused the request leaves the model server's answer to the
client: the documented output_handler raises ValueError for every answer that is not 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from pierhead.contract.status import status_of
from pierhead.errors import ServingError, UserCodeError
from pierhead.formats.predict_json import Layout, parse_predict, render_error, render_predict
from pierhead.service.answers import Answer, read_answer
from pierhead.service.backend import Backend
from pierhead.service.call import Call
from pierhead.service.chunks import WHOLE, body_bytes
from pierhead.service.context import Context
from pierhead.service.conversion import ModelRequest
from pierhead.service.hook_errors import HookError
from pierhead.service.hooks import HookPair, WholeHook
from pierhead.service.prediction import predict_arrays, predict_document
from pierhead.service.response import ModelResponse
from pierhead.service.user_code import call_user_code

__all__ = ["PairHandler", "WholeHandler"]

WANTED = "a predict body of str or bytes, a dict of numpy arrays by input name, or what read_request returns"


class WholeHandler:
    """Answers requests by the user's `handler`."""

    def __init__(self, hooks: WholeHook) -> None:
        self._hooks = hooks

    def __call__(self, data: IO[bytes], _call: Call, context: Context) -> Answer:
        """Return what the hook returns; raise UserCodeError where it fails."""
        result = call_user_code(self._hooks.handler, data, context)
        return read_answer(result, context, "handler")


class PairHandler:
    """Answers requests by `input_handler`, the model, and `output_handler`."""

    def __init__(self, hooks: HookPair, backend: Backend, *, multi_model: bool = False) -> None:
        self._hooks = hooks
        self._backend = backend
        self._multi_model = multi_model

    def __call__(self, data: IO[bytes], call: Call, context: Context) -> Answer:
        """Return what the hooks make of the model's answer; raise UserCodeError where one fails."""
        request = call_user_code(self._hooks.input_handler, data, context)
        response = self._ask_model(request, call, context)
        try:
            result = call_user_code(self._hooks.output_handler, response, context)
            return read_answer(result, context, "output_handler")
        except UserCodeError as problem:
            if response.ok or isinstance(problem, HookError):
                raise
            return Answer(response.content, status=response.status_code)

    def _ask_model(self, request: Any, call: Call, context: Context) -> ModelResponse:
        try:
            if (
                isinstance(request, ModelRequest)
                and request.is_predict
                and self._backend.tells_signatures(call)
            ):
                name = request.signature_name
                outputs = predict_arrays(request.arrays, call, self._backend, name)
                return _success(outputs, request.layout, context)
            if isinstance(request, Mapping):
                outputs = predict_arrays(request, call, self._backend)
                return _success(outputs, Layout.COLUMNAR, context)
            return self._ask_by_json(_read_body(request), call, context)
        except ServingError as refusal:
            message = refusal.message
            status = status_of(refusal, multi_model=self._multi_model)
            return ModelResponse(status, lambda: render_error(message), url=context.rest_uri)

    def _ask_by_json(self, body: bytes, call: Call, context: Context) -> ModelResponse:
        if call.method == "predict" and self._backend.tells_signatures(call):
            outputs, layout = predict_document(parse_predict(body), call, self._backend)
            return _success(outputs, layout, context)
        answer = self._backend.forward(call, body)
        return ModelResponse(answer.status, lambda: answer.body, url=context.rest_uri)


def _success(outputs: Any, layout: Layout, context: Context) -> ModelResponse:
    return ModelResponse(
        200, lambda: render_predict(outputs, layout), url=context.rest_uri, outputs=outputs, layout=layout
    )


def _read_body(request: Any) -> bytes:
    if isinstance(request, ModelRequest):
        return request.json_body
    if isinstance(request, WHOLE):
        return body_bytes(request, "input_handler")
    kind = "None" if request is None else f"a value of type {type(request).__name__}"
    raise UserCodeError(f"input_handler returned {kind}; wanted is {WANTED}")
