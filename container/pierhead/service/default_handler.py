"""Requests without hooks: any format in, the model's answer in the format that Accept asks for."""

from __future__ import annotations

from typing import IO

from pierhead.formats.payloads import parse_payload, render_payload, response_type
from pierhead.service.answers import Answer
from pierhead.service.backend import Backend
from pierhead.service.call import Call
from pierhead.service.context import Context
from pierhead.service.prediction import predict_document
from pierhead.service.rest_forward import forward

__all__ = ["DefaultHandler"]


class DefaultHandler:
    """Answers requests by the model alone."""

    def __init__(self, backend: Backend, default_accept: str) -> None:
        self._backend = backend
        self._default_accept = default_accept

    def __call__(self, data: IO[bytes], call: Call, context: Context) -> Answer:
        """Return the model's answer.

        Raises UnsupportedMediaType, NotAcceptable, or ServingError from the codec or the model server.
        """
        body = data.read()
        if call.method != "predict":
            return forward(body, call)
        media_type = response_type(context.accept_header, self._default_accept)
        document = parse_payload(body, context.request_content_type)
        outputs, layout = predict_document(document, call, self._backend)
        return Answer(render_payload(outputs, layout, media_type), media_type)
