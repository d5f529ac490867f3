"""The REST door: TensorFlow Serving's routes, and the one that SageMaker's invocations take through nginx.

Paths are matched whole, query string included, and fixed words in any case; a method or `metadata` in another
case matches and is then not recognised, as in the original. Source: TensorFlow Serving's contract, section 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from urllib.parse import unquote

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.contract.status import HTTP_STATUS
from pierhead.errors import Code, PierheadError, ServingError
from pierhead.formats.predict_json import Layout, parse_predict, render_error, render_predict
from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import DataPlane, ModelSpec
from pierhead.modelserver.http_messages import Answer, Request, Work, finished, html_answer, version_number
from pierhead.modelserver.http_methods import HttpMethods
from pierhead.modelserver.inference_route import Exchange, InferenceRoute, inflated
from pierhead.modelserver.invocations import Invocations
from pierhead.modelserver.monitoring import Monitoring
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
CORS_HEADERS = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "POST, GET"),
    ("Access-Control-Allow-Headers", "Content-Type"),
)


class RestDoor:
    """Answers HTTP requests; `timeout_ms` bounds runs, `cors` adds the headers of section 1.5.

    `invocations_model` is the model of `POST /invocations`; empty, there is nothing at that path.
    """

    def __init__(
        self,
        plane: DataPlane,
        codec: ProtobufCodec,
        *,
        timeout_ms: int = 0,
        cors: bool = False,
        monitoring: Monitoring | None = None,
        invocations_model: str = "",
    ) -> None:
        self._plane = plane
        self._codec = codec
        self._methods = HttpMethods(plane, codec)
        self._route = InferenceRoute(plane, max(timeout_ms, 0))
        self._monitoring = monitoring
        self._invocations = Invocations(
            self._methods, self._route, monitoring, default_model=invocations_model
        )
        self._cors_headers = CORS_HEADERS if cors else ()

    def answer(self, request: Request) -> Answer | Work:
        """Return the answer to a request, or the work that makes it."""
        target = ORIGIN_FORM.sub("", request.target, count=1)
        if request.method in {"TRACE", "CONNECT"}:
            return html_answer(HTTPStatus.NOT_IMPLEMENTED)
        if self._invocations.owns(target):
            return self._invocations.answer(request, target)
        if self._monitoring and self._monitoring.owns(target):
            return self._monitoring.page(target)
        if not API.fullmatch(target):
            return html_answer(HTTPStatus.NOT_FOUND)
        answer = self._answer_api(request, target)
        return finished(answer, self._with_cors) if self._cors_headers else answer

    def _answer_api(self, request: Request, target: str) -> Answer | Work:
        if request.method == "OPTIONS":
            return _preflight_answer(request.headers.get("origin", ""))
        path = {"POST": METHOD_PATH, "GET": MODEL_PATH}.get(request.method)
        match = path.fullmatch(target) if path else None
        if match and match["version"] and version_number(match["version"]) > LARGEST_VERSION:
            return Answer(400)
        if self._monitoring:
            model = unquote(match["name"] or "") if match else ""
            api = match["method"] if match and request.method == "POST" else ""
            return self._monitoring.counted(model, api, lambda: self._answer_match(request, target, match))
        return self._answer_match(request, target, match)

    def _answer_match(self, request: Request, target: str, match: re.Match[str] | None) -> Answer | Work:
        if match is None:
            return _malformed(request.method, target)
        if request.method == "GET":
            return self._answer_about(match)
        return self._answer_method(request, target, match)

    def _answer_method(self, request: Request, target: str, match: re.Match[str]) -> Answer | Work:
        spec, method = _spec(match), match["method"]
        if method == "predict":
            understand = partial(self._methods.predict, spec, parse=parse_predict, render=_rendered)
        elif method in {"classify", "regress"}:
            understand = partial(self._methods.examples, method, spec)
        else:
            return _malformed(request.method, target)
        return self._route.answer(request, Exchange(understand, refusal_answer, inflated))

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
    return Answer(HTTP_STATUS[code], render_error(str(refusal)), code=code)


def _rendered(outputs: Mapping[str, Array], layout: Layout) -> Answer:
    return Answer(200, render_predict(outputs, layout))


def _spec(match: re.Match[str]) -> ModelSpec:
    version = version_number(match["version"]) if match["version"] else None
    label = unquote(match["label"]) if match["label"] else None
    return ModelSpec(unquote(match["name"]), version, label)


def _malformed(method: str, target: str) -> Answer:
    return refusal_answer(ServingError(Code.INVALID_ARGUMENT, f"Malformed request: {method} {target}"))


def _preflight_answer(origin: str) -> Answer:
    is_origin = "http://" in origin or "https://" in origin
    return Answer(200 if is_origin else 400, content_type="text/html; charset=ISO-8859-1")
