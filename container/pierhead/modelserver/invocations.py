"""SageMaker's invocations, as nginx passes them on: any supported content type in, by Accept out.

The path is that of the REST API behind `/invocations`, or, in the server of one model of a multi-model
endpoint, `/invocations` alone: then the custom attributes choose. Answers and errors are, byte for byte,
those that the handler workers give.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from urllib.parse import unquote

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.contract.attributes import parse_attributes
from pierhead.contract.headers import CUSTOM_ATTRIBUTES
from pierhead.contract.status import FAILURE, status_of
from pierhead.errors import (
    Code,
    PierheadError,
    ServingError,
)
from pierhead.formats.encodings import LARGEST_DECOMPRESSED, decoded
from pierhead.formats.media_types import NPZ, media_type
from pierhead.formats.payloads import parse_payload, render_payload, response_type
from pierhead.formats.predict_json import Layout, render_error
from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import ModelSpec
from pierhead.modelserver.http_messages import Answer, Request, Work, version_number
from pierhead.modelserver.http_methods import HttpMethods
from pierhead.modelserver.http_protocol import malformed_answer
from pierhead.modelserver.inference_route import CONTENT_ENCODING, Exchange, Inference, InferenceRoute
from pierhead.modelserver.monitoring import Monitoring

__all__ = [
    "DEFAULT_ACCEPT_HEADER",
    "MAX_DECOMPRESSED_HEADER",
    "PREFIX",
    "Invocations",
    "malformed_invocation",
]

ROUTE = "/invocations"
PREFIX = "/invocations/"
ATTRIBUTES = CUSTOM_ATTRIBUTES.lower()
DEFAULT_ACCEPT_HEADER = "X-Pierhead-Default-Accept"
MAX_DECOMPRESSED_HEADER = "X-Pierhead-Max-Decompressed-MB"
JSON = "application/json"
PREDICT = "predict"
Refuse = Callable[[PierheadError], Answer]
PATH = re.compile(
    r"/invocations/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
    r":(?P<method>predict|classify|regress)",
    re.ASCII,
)
MEGABYTES = re.compile("[0-9]{1,7}", re.ASCII)
MALFORMED = "the request is not valid HTTP"
KNOWN_HEADERS = 64
LONGEST_KNOWN = 256


def malformed_invocation(target: str) -> Answer:
    """Return the refusal of something that is no HTTP: nginx hands one below our path on to SageMaker."""
    if not target.startswith(PREFIX) and target != ROUTE:
        return malformed_answer(target)
    return Answer(400, render_error(MALFORMED), JSON, closes=True)


class Invocations:
    """Answers what stands below `/invocations/`; monitoring counts that as requests of the REST API.

    With a default model it answers at `/invocations` too, with the statuses of a multi-model endpoint.
    """

    def __init__(
        self,
        methods: HttpMethods,
        route: InferenceRoute,
        monitoring: Monitoring | None = None,
        *,
        default_model: str = "",
    ) -> None:
        self._methods = methods
        self._route = route
        self._monitoring = monitoring
        self._default = ModelSpec(default_model)

    def owns(self, target: str) -> bool:
        """Return whether a path is one of this door."""
        return target.startswith(PREFIX) or (target == ROUTE and self._default.name != "")

    def answer(self, request: Request, target: str) -> Answer | Work:
        """Return the answer to an invocation, or the work that makes it."""
        return self._answer_route(request) if target == ROUTE else self._answer_path(request, target)

    def _answer_route(self, request: Request) -> Answer | Work:
        if request.method != "POST":
            return _error(405, f"an invocation is a POST, not a {request.method}")
        header = request.headers.get(ATTRIBUTES)
        if not header:
            return self._counted(request, PREDICT, self._default, _refused_of_many)
        try:
            attributes = parse_attributes(header)
            spec = ModelSpec(attributes.model or self._default.name, attributes.version, attributes.label)
            self._route.plane.check_known(spec)
        except ServingError as refusal:
            return _refused_of_many(refusal)
        return self._counted(request, attributes.method, spec, _refused_of_many)

    def _answer_path(self, request: Request, target: str) -> Answer | Work:
        match = PATH.fullmatch(target)
        if match is None:
            return _error(404, f"there is nothing at {target}")
        if request.method != "POST":
            return _error(405, f"an invocation is a POST, not a {request.method}")
        version = version_number(match["version"]) if match["version"] else None
        if version is not None and version > LARGEST_VERSION:
            return _error(400, f"{version} is no version: it is too large")
        spec, method = ModelSpec(unquote(match["name"]), version, match["label"]), match["method"]
        return self._counted(request, method, spec, _refused)

    def _counted(self, request: Request, method: str, spec: ModelSpec, refuse: Refuse) -> Answer | Work:
        if self._monitoring:
            return self._monitoring.counted(
                spec.name, method, lambda: self._answer(request, method, spec, refuse)
            )
        return self._answer(request, method, spec, refuse)

    def _answer(self, request: Request, method: str, spec: ModelSpec, refuse: Refuse) -> Answer | Work:
        if method != PREDICT:
            # As through the handler workers: a REST request, whatever types the headers name.
            understand = partial(self._methods.examples, method, spec)
            return self._route.answer(request, Exchange(understand, refuse, _decoded))
        is_archive = media_type(request.headers.get("content-type", "")) == NPZ
        understand = partial(self._predict, request, spec)
        return self._route.answer(request, Exchange(understand, refuse, _decoded, large=is_archive))

    def _predict(self, request: Request, spec: ModelSpec, body: bytes) -> Inference:
        headers = request.headers
        default = headers.get(DEFAULT_ACCEPT_HEADER.lower()) or JSON
        accepted = _response_type(headers.get("accept", ""), default)
        largest = _most_decompressed(request)
        parse = partial(parse_payload, content_type=headers.get("content-type"), largest=largest)
        return self._methods.predict(spec, body, parse, partial(_rendered, media_type=accepted))


def _response_type(accept: str, default: str) -> str:
    """Return the type to answer with; clients repeat themselves, and reading a header takes 30 µs."""
    is_usual = len(accept) + len(default) <= LONGEST_KNOWN
    return _known_response_type(accept, default) if is_usual else response_type(accept, default)


_known_response_type = lru_cache(KNOWN_HEADERS)(response_type)


def _decoded(request: Request) -> bytes:
    return decoded(request.body, request.headers.get(CONTENT_ENCODING), _most_decompressed(request))


def _most_decompressed(request: Request) -> int:
    """Return the bytes that a body may become; nginx passes the setting on."""
    megabytes = request.headers.get(MAX_DECOMPRESSED_HEADER.lower(), "")
    return int(megabytes) << 20 if MEGABYTES.fullmatch(megabytes) else LARGEST_DECOMPRESSED


def _rendered(outputs: dict[str, Array], layout: Layout, *, media_type: str) -> Answer:
    return Answer(200, render_payload(outputs, layout, media_type), media_type)


def _refused_of_many(refusal: PierheadError) -> Answer:
    return _refused(refusal, multi_model=True)


def _refused(refusal: PierheadError, *, multi_model: bool = False) -> Answer:
    status = status_of(refusal, multi_model=multi_model)
    if isinstance(refusal, ServingError):
        return _error(status, refusal.message, refusal.code)
    return _error(status, str(refusal), Code.INTERNAL if status == FAILURE else Code.INVALID_ARGUMENT)


def _error(status: int, message: str, code: Code = Code.INVALID_ARGUMENT) -> Answer:
    return Answer(status, render_error(message), code=code)
