"""The HTTP status of each canonical code, as TensorFlow Serving's REST API answers it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pierhead.errors import Code, ModelServerAway, ServingError

__all__ = ["HTTP_STATUS", "status_of"]

BAD_GATEWAY = 502

HTTP_STATUS: Mapping[Code, int] = MappingProxyType(
    {
        Code.OK: 200,
        Code.CANCELLED: 499,
        Code.UNKNOWN: 500,
        Code.INVALID_ARGUMENT: 400,
        Code.DEADLINE_EXCEEDED: 504,
        Code.NOT_FOUND: 404,
        Code.ALREADY_EXISTS: 409,
        Code.PERMISSION_DENIED: 403,
        Code.RESOURCE_EXHAUSTED: 429,
        Code.FAILED_PRECONDITION: 400,
        Code.ABORTED: 409,
        Code.OUT_OF_RANGE: 400,
        Code.UNIMPLEMENTED: 501,
        Code.INTERNAL: 500,
        Code.UNAVAILABLE: 503,
        Code.DATA_LOSS: 500,
        Code.UNAUTHENTICATED: 401,
    }
)


def status_of(refusal: ServingError) -> int:
    """Return a refusal's HTTP status; where no model server answers it is the one that nginx gives too."""
    return BAD_GATEWAY if isinstance(refusal, ModelServerAway) else HTTP_STATUS[refusal.code]
