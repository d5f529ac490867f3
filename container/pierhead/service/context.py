"""What a hook is told about its request.

The first eleven fields are those that inference.py files are written against, in their order; ours come after
them. No field is None because the caller left a header out. Sources: the TensorFlow Serving image's contract,
section Hooks, and field case C09.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import grpc
from werkzeug.datastructures import Headers

from pierhead.contract.headers import CUSTOM_ATTRIBUTES
from pierhead.formats.tensors import Signature
from pierhead.logs import current_request_id
from pierhead.service.call import NO_SERVER, Call

__all__ = ["Context", "describe_request", "rest_path"]

DEFAULT_CONTENT_TYPE = "application/json"
UNKNOWN_LENGTH = -1


class Context(NamedTuple):
    """A request's model, the way to it, and what the caller sent.

    `rest_uri` and `grpc_port` are of the same model server. `rest_uri` names a version, or its label, only
    where the request does. `content_length` is -1 for a body of unknown length, so that
    `data.read(content_length)` reads it. `timeout` is in seconds. `default_accept` is the type for callers
    who name none; `max_decompressed_bytes` bounds what a body may become. `signature(name)` returns the
    model's inputs and outputs; `""` names the default one. `request_id` is the id in the log.

    Where no model server runs, because the artifact has no SavedModel, `rest_uri` and `grpc_port` are empty.
    """

    model_name: str
    model_version: str
    method: str
    rest_uri: str
    grpc_port: str
    channel: grpc.Channel
    custom_attributes: str
    request_content_type: str
    accept_header: str
    content_length: int
    timeout: float
    request_headers: Headers
    default_accept: str
    max_decompressed_bytes: int
    signature: Callable[[str], Signature]
    request_id: str


def describe_request(
    call: Call,
    headers: Headers,
    *,
    served_version: int | None,
    channel: grpc.Channel,
    signature: Callable[[str], Signature],
    default_accept: str,
    max_decompressed_bytes: int,
) -> Context:
    """Return the context of a request; `served_version` is what its version means at the moment, if known."""
    version = call.version if served_version is None else served_version
    has_server = call.server != NO_SERVER
    return Context(
        model_name=call.model,
        model_version="" if version is None else str(version),
        method=call.method,
        rest_uri=f"http://127.0.0.1:{call.server.rest_port}{rest_path(call)}" if has_server else "",
        grpc_port=str(call.server.grpc_port) if has_server else "",
        channel=channel,
        custom_attributes=headers.get(CUSTOM_ATTRIBUTES, ""),
        request_content_type=headers.get("Content-Type") or DEFAULT_CONTENT_TYPE,
        accept_header=_accept(headers.get("Accept", ""), default_accept),
        content_length=_content_length(headers),
        timeout=call.timeout,
        request_headers=headers,
        default_accept=default_accept,
        max_decompressed_bytes=max_decompressed_bytes,
        signature=signature,
        request_id=current_request_id(),
    )


def rest_path(call: Call) -> str:
    """Return the path of this request in the model server's REST API."""
    model = quote(call.model, safe="")
    version = "" if call.version is None else f"/versions/{call.version}"
    label = "" if call.label is None else f"/labels/{quote(call.label, safe='')}"
    return f"/v1/models/{model}{version}{label}:{call.method}"


def _accept(header: str, default: str) -> str:
    return default if header.strip() in {"", "*/*"} else header


def _content_length(headers: Headers) -> int:
    text = headers.get("Content-Length", "")
    if text.isascii() and text.isdigit():
        return int(text)
    return UNKNOWN_LENGTH if "Transfer-Encoding" in headers else 0
