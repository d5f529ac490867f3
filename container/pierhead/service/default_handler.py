"""Requests without hooks: any format in, the model's answer in the format that Accept asks for."""

from __future__ import annotations

from typing import IO

from pierhead.errors import NotAcceptable, UnsupportedMediaType
from pierhead.formats.documents import Document
from pierhead.formats.encodings import LARGEST_DECOMPRESSED, content_coding
from pierhead.formats.json_answers import render_document, rewrite_answer
from pierhead.formats.json_document import Json
from pierhead.formats.media_types import CSV, JSON, JSON_LINES, NPY, NPZ
from pierhead.formats.payloads import parse_payload, render_payload, response_type
from pierhead.formats.predict_json import PredictDocument
from pierhead.service.answers import OK, Answer
from pierhead.service.backend import Backend, RestAnswer
from pierhead.service.call import Call
from pierhead.service.context import Context
from pierhead.service.prediction import predict_document

__all__ = ["DefaultHandler"]

NO_SIGNATURE = "the model server does not tell the model's signature, without which there are no tensors"


class DefaultHandler:
    """Answers requests by the model alone."""

    def __init__(self, backend: Backend, default_accept: str, largest: int = LARGEST_DECOMPRESSED) -> None:
        self._backend = backend
        self._default_accept = default_accept
        self._largest = largest

    def __call__(self, data: IO[bytes], call: Call, context: Context) -> Answer:
        """Return the model's answer.

        Raises UnsupportedMediaType, NotAcceptable, PayloadTooLarge, or ServingError from the codec or the
        model server.
        """
        content_coding(context.request_headers.get("Content-Encoding"))
        body = data.read()
        if call.method != "predict":
            return _as_it_is(self._backend.forward(call, body))
        media_type = response_type(context.accept_header, self._default_accept)
        document = parse_payload(body, context.request_content_type, self._largest)
        if not self._backend.tells_signatures(call):
            return self._by_json(
                _json_root(document, context.request_content_type, media_type), call, media_type
            )
        outputs, layout = predict_document(document, call, self._backend)
        return Answer(render_payload(outputs, layout, media_type), media_type)

    def _by_json(self, root: dict[str, Json], call: Call, media_type: str) -> Answer:
        answer = self._backend.forward(call, render_document(root))
        if answer.status != OK:
            return _as_it_is(answer)
        body, content_type = rewrite_answer(answer.body, media_type)
        return Answer(body, content_type)


def _json_root(document: Document, content_type: str, media_type: str) -> dict[str, Json]:
    """Return a request's JSON; raise where request or answer are tensors, for which there is no signature."""
    if not isinstance(document, PredictDocument):
        raise UnsupportedMediaType(
            f"Content-Type {content_type} cannot be read: {NO_SIGNATURE}; "
            f"send {JSON}, {JSON_LINES[0]} or {CSV}"
        )
    if media_type in (NPY, NPZ):
        raise NotAcceptable(
            f"{media_type} cannot be written: {NO_SIGNATURE}; accept {JSON}, {JSON_LINES[0]} or {CSV}"
        )
    return document.root


def _as_it_is(answer: RestAnswer) -> Answer:
    return Answer(answer.body, answer.content_type, answer.status)
