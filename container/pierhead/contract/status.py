"""The HTTP status of each canonical code, as TensorFlow Serving's REST API answers it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pierhead.errors import (
    Code,
    ModelServerAway,
    NotAcceptable,
    PayloadTooLarge,
    PierheadError,
    ServingError,
    UnsupportedMediaType,
    UserCodeError,
)

__all__ = ["FAILURE", "HTTP_STATUS", "MULTI_MODEL_STATUS", "STATUSES", "status_of"]

BAD_GATEWAY = 502
FAILURE = 500

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
# What SageMaker acts on at a multi-model endpoint: 507 makes it unload other models. Source: SageMaker's
# platform contract, section 2.
MULTI_MODEL_STATUS: Mapping[Code, int] = MappingProxyType(
    {**HTTP_STATUS, Code.RESOURCE_EXHAUSTED: 507, Code.UNAVAILABLE: 503}
)
STATUSES: Mapping[type[PierheadError], int] = MappingProxyType(
    {UnsupportedMediaType: 415, PayloadTooLarge: 413, NotAcceptable: 406, UserCodeError: FAILURE}
)


def status_of(problem: PierheadError, *, multi_model: bool = False) -> int:
    """Return the HTTP status of an error, the same from handler workers and from the model server.

    Where no model server answers it is the one that nginx gives too.
    """
    if isinstance(problem, ServingError) and multi_model:
        return MULTI_MODEL_STATUS[problem.code]
    if isinstance(problem, ServingError):
        return BAD_GATEWAY if isinstance(problem, ModelServerAway) else HTTP_STATUS[problem.code]
    return next((status for kind, status in STATUSES.items() if isinstance(problem, kind)), FAILURE)
