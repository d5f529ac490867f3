"""Every exception that Pierhead raises on purpose; none of them knows HTTP or gRPC's wire.

PierheadError
├── ConfigError             settings that cannot be used; holds all problems found
├── ArtifactError           a model folder that cannot be served
├── StartError              a process of the stack that can never start
├── ControlError            a message between two programs that cannot be understood
├── ServingError            a request refused with a canonical status code
│   ├── ModelServerAway     no model server answers, or it broke off
│   └── ModelsUnavailable   models that a model server should serve and cannot
├── UnsupportedMediaType    a Content-Type that nothing here can read
├── NotAcceptable           an Accept list with nothing that can be written
├── PayloadTooLarge         a body that would become larger, once decompressed, than a setting allows
└── UserCodeError           the user's inference.py failed
    └── HookShapeError      inference.py does not define the functions that are wanted

The doors map these: `contract/status.py` to HTTP statuses, `modelserver/grpc_server.py`
to gRPC codes.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "LACKS",
    "ArtifactError",
    "Code",
    "ConfigError",
    "ControlError",
    "HookShapeError",
    "ModelFailure",
    "ModelServerAway",
    "ModelsUnavailable",
    "NotAcceptable",
    "PayloadTooLarge",
    "PierheadError",
    "RequestEnded",
    "ServingError",
    "StartError",
    "UnsupportedMediaType",
    "UserCodeError",
]


# How the system says that it has no memory, processes, files or disk left.
LACKS = frozenset({errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOSPC})


class Code(IntEnum):
    """The canonical status codes that TensorFlow Serving answers with, by their gRPC numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class PierheadError(Exception):
    """The root of the tree."""


class ConfigError(PierheadError):
    """Settings that cannot be used; each problem names the variable, its text and the rule."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class ArtifactError(PierheadError):
    """A model folder or archive that cannot be served, with what was found and what is expected."""


class StartError(PierheadError):
    """A process of the stack that can never start, with the reason."""


class ControlError(PierheadError):
    """A message between two of the programs that cannot be understood, or was not answered."""


class ServingError(PierheadError):
    """A request refused, by a model server or by the reading of its body, with a canonical code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ModelServerAway(ServingError):
    """No model server takes a request, or the one that took it broke off."""

    def __init__(self) -> None:
        super().__init__(Code.UNAVAILABLE, "the model server is away or broke off; it is being started again")


@dataclass(frozen=True)
class ModelFailure:
    """Why a model, or one version of it, is not available."""

    model: str
    version: int | None
    code: Code


class ModelsUnavailable(ServingError):
    """Models that a model server should serve and cannot, with the reason of each."""

    def __init__(self, message: str, failures: Sequence[ModelFailure]) -> None:
        super().__init__(Code.UNKNOWN, message)
        self.failures = tuple(failures)


class UnsupportedMediaType(PierheadError):
    """A Content-Type that nothing here can read; the message names it and those that can be read."""


class NotAcceptable(PierheadError):
    """An Accept list with no type that can be written; the message names those that can."""


class PayloadTooLarge(PierheadError):
    """A body that would become larger, once decompressed, than a setting allows; the message names it."""


class UserCodeError(PierheadError):
    """The user's inference.py raised, or returned what cannot be sent."""


class RequestEnded(BaseException):
    """Raised in a request that has kept its worker too long; it has been answered."""


class HookShapeError(UserCodeError):
    """The user's inference.py does not define hooks of a shape that can be called."""
