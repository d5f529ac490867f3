"""The REST door: TensorFlow Serving's routes, and the one that SageMaker's invocations take through nginx.

Paths are matched whole, query string included, and fixed words in any case; a method or `metadata` in another
case matches and is then not recognised, as in the original. Source: TensorFlow Serving's contract, section 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import unquote

from pierhead.contract.status import HTTP_STATUS
from pierhead.errors import Code, PierheadError, ServingError
from pierhead.formats.predict_json import Layout, parse_predict, render_error, render_predict
from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import DataPlane, ModelSpec
from pierhead.modelserver.http_messages import Answer, Request, Work, html_answer
from pierhead.modelserver.invocations import Invocations
from pierhead.modelserver.predict_route import Exchange, PredictRoute
from pierhead.modelserver.protobuf_codec import ProtobufCodec

__all__ = ["RestDoor"]

API = re.compile(r"/v1/.*", re.IGNORECASE | re.ASCII | re.DOTALL)
CHOICE = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
METHOD_PATH = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){CHOICE}:(?P<method>predict|classify|regress)", re.IGNORECASE | re.ASCII
)
MODEL_PATH = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{CHOICE}(?:/(?P<part>metadata))?", re.IGNORECASE | re.ASCII
)
ORIGIN_FORM = re.compile(r"https?://[^/]*", re.IGNORECASE | re.ASCII)
LARGEST_VERSION = 2**63 - 1
CORS_HEADERS = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "POST, GET"),
    ("Access-Control-Allow-Headers", "Content-Type"),
)


class RestDoor:
    """Answers HTTP requests; `timeout_ms` bounds runs, `cors` adds the headers of section 1.5."""

    def __init__(
        self, plane: DataPlane, codec: ProtobufCodec, *, timeout_ms: int = 0, cors: bool = False
    ) -> None:
        self._plane = plane
        self._codec = codec
        self._predict = PredictRoute(plane, max(timeout_ms, 0))
        self._invocations = Invocations(self._predict)
        self._exchange = Exchange(parse_predict, _rendered, refusal_answer)
        self._cors_headers = CORS_HEADERS if cors else ()

    def answer(self, request: Request) -> Answer | Work:
        """Return the answer to a request, or the work that makes it."""
        target = ORIGIN_FORM.sub("", request.target, count=1)
        if request.method in {"TRACE", "CONNECT"}:
            return html_answer(HTTPStatus.NOT_IMPLEMENTED)
        if self._invocations.owns(target):
            return self._invocations.answer(request, target)
        if not API.fullmatch(target):
            return html_answer(HTTPStatus.NOT_FOUND)
        answer = self._answer_api(request, target)
        if not self._cors_headers:
            return answer
        if isinstance(answer, Answer):
            return self._with_cors(answer)
        work = answer
        return lambda: self._with_cors(work())

    def _answer_api(self, request: Request, target: str) -> Answer | Work:
        if request.method == "OPTIONS":
            return _preflight_answer(request.headers.get("origin", ""))
        path = {"POST": METHOD_PATH, "GET": MODEL_PATH}.get(request.method)
        match = path.fullmatch(target) if path else None
        if match is None:
            return _malformed(request.method, target)
        if match["version"] and int(match["version"]) > LARGEST_VERSION:
            return Answer(400)
        if request.method == "GET":
            return self._answer_about(match)
        return self._answer_method(request, target, match)

    def _answer_method(self, request: Request, target: str, match: re.Match[str]) -> Answer | Work:
        if match["method"] == "predict":
            return self._predict.answer(_spec(match), request, self._exchange)
        if match["method"] in {"classify", "regress"}:
            message = f"{match['method']} requests are not served by this model server"
            return refusal_answer(ServingError(Code.UNIMPLEMENTED, message))
        return _malformed(request.method, target)

    def _answer_about(self, match: re.Match[str]) -> Answer:
        if not match["name"]:
            message = "Missing model name in request."
            return refusal_answer(ServingError(Code.INVALID_ARGUMENT, message))
        spec = _spec(match)
        try:
            if match["part"] == "metadata":
                return Answer(200, self._codec.metadata_json(self._plane.metadata(spec)))
            return Answer(200, self._codec.status_json(self._plane.status(spec)))
        except ServingError as refusal:
            return refusal_answer(refusal)

    def _with_cors(self, answer: Answer) -> Answer:
        return replace(answer, headers=answer.headers + self._cors_headers)


def refusal_answer(refusal: PierheadError) -> Answer:
    """Return the error answer of TensorFlow Serving for a refusal."""
    code = refusal.code if isinstance(refusal, ServingError) else Code.INTERNAL
    return Answer(HTTP_STATUS[code], render_error(str(refusal)))


def _rendered(outputs: Mapping[str, Array], layout: Layout) -> Answer:
    return Answer(200, render_predict(outputs, layout))


def _spec(match: re.Match[str]) -> ModelSpec:
    version = int(match["version"]) if match["version"] else None
    label = unquote(match["label"]) if match["label"] else None
    return ModelSpec(unquote(match["name"]), version, label)


def _malformed(method: str, target: str) -> Answer:
    return refusal_answer(ServingError(Code.INVALID_ARGUMENT, f"Malformed request: {method} {target}"))


def _preflight_answer(origin: str) -> Answer:
    is_origin = "http://" in origin or "https://" in origin
    return Answer(200 if is_origin else 400, content_type="text/html; charset=ISO-8859-1")
