"""SageMaker's invocations, as nginx passes them on: any supported content type in, by Accept out.

The path is that of the REST API behind `/invocations`; answers and errors are, byte for byte, those that the
handler workers give.
"""

from __future__ import annotations

import re
from functools import partial
from urllib.parse import unquote

from pierhead.contract.status import HTTP_STATUS
from pierhead.errors import Code, NotAcceptable, PierheadError, ServingError, UnsupportedMediaType
from pierhead.formats.payloads import parse_payload, render_payload, response_type
from pierhead.formats.predict_json import Layout, render_error
from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import ModelSpec
from pierhead.modelserver.http_messages import Answer, Request, Work
from pierhead.modelserver.predict_route import Exchange, PredictRoute

__all__ = ["DEFAULT_ACCEPT_HEADER", "PREFIX", "Invocations"]

PREFIX = "/invocations/"
DEFAULT_ACCEPT_HEADER = "X-Pierhead-Default-Accept"
JSON = "application/json"
PATH = re.compile(
    r"/invocations/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>[0-9]+))?"
    r":(?P<method>predict|classify|regress)",
    re.ASCII,
)
LARGEST_VERSION = 2**63 - 1


class Invocations:
    """Answers what stands below `/invocations/`."""

    def __init__(self, predict: PredictRoute) -> None:
        self._predict = predict

    def owns(self, target: str) -> bool:
        """Return whether a path is one of this door."""
        return target.startswith(PREFIX)

    def answer(self, request: Request, target: str) -> Answer | Work:
        """Return the answer to an invocation, or the work that makes it."""
        match = PATH.fullmatch(target)
        if match is None:
            return _error(404, f"there is nothing at {target}")
        if request.method != "POST":
            return _error(405, f"an invocation is a POST, not a {request.method}")
        if match["method"] != "predict":
            message = f"{match['method']} requests are not served by this model server"
            return _refused(ServingError(Code.UNIMPLEMENTED, message))
        version = int(match["version"]) if match["version"] else None
        if version is not None and version > LARGEST_VERSION:
            return _error(400, f"{version} is no version: it is too large")
        try:
            exchange = _exchange(request)
        except PierheadError as refusal:
            return _refused(refusal)
        return self._predict.answer(ModelSpec(unquote(match["name"]), version), request, exchange)


def _exchange(request: Request) -> Exchange:
    """Return the formats that a request's headers ask for; raise NotAcceptable where none suits."""
    headers = request.headers
    default = headers.get(DEFAULT_ACCEPT_HEADER.lower()) or JSON
    media_type = response_type(headers.get("accept"), default)
    parse = partial(parse_payload, content_type=headers.get("content-type"))
    return Exchange(parse, partial(_rendered, media_type=media_type), _refused)


def _rendered(outputs: dict[str, Array], layout: Layout, *, media_type: str) -> Answer:
    return Answer(200, render_payload(outputs, layout, media_type), media_type)


def _refused(refusal: PierheadError) -> Answer:
    match refusal:
        case UnsupportedMediaType():
            return _error(415, str(refusal))
        case NotAcceptable():
            return _error(406, str(refusal))
        case ServingError():
            return _error(HTTP_STATUS[refusal.code], refusal.message)
        case _:
            return _error(500, str(refusal))


def _error(status: int, message: str) -> Answer:
    return Answer(status, render_error(message))
