"""The `Backend` of artifacts without a SavedModel: the model lives in the worker, and no server runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import grpc

from pierhead.control import ServerAddress
from pierhead.errors import Code, ServingError, UserCodeError
from pierhead.formats.tensors import Array, Signature
from pierhead.service.backend import Prediction, RestAnswer
from pierhead.service.call import NO_SERVER, Call
from pierhead.service.channel import LazyChannel

__all__ = ["NoModelServers"]

REASON = "no model server runs here: the artifact has no SavedModel"


class NoModelServers:
    """Says so to whoever asks for a model server."""

    def next_server(self) -> ServerAddress:
        """Return an address where nobody listens."""
        return NO_SERVER

    def served_version(self, model: str, version: int | None) -> int | None:  # noqa: ARG002
        """Return the version asked for: there are none to choose from."""
        return version

    def channel(self, server: ServerAddress) -> grpc.Channel:  # noqa: ARG002
        """Return a channel whose use raises UserCodeError."""
        return LazyChannel(_refuse_channel)

    def tells_signatures(self, call: Call) -> bool:  # noqa: ARG002
        """Return that there are none to be had."""
        return False

    def signature(self, call: Call, name: str) -> Signature:  # noqa: ARG002
        """Raise ServingError."""
        raise ServingError(Code.UNIMPLEMENTED, REASON)

    def predict(self, call: Call, signature_name: str, inputs: Mapping[str, Array]) -> Prediction:  # noqa: ARG002
        """Raise ServingError."""
        raise ServingError(Code.UNIMPLEMENTED, REASON)

    def forward(self, call: Call, body: bytes) -> RestAnswer:  # noqa: ARG002
        """Raise ServingError."""
        raise ServingError(Code.UNIMPLEMENTED, REASON)


def _refuse_channel() -> NoReturn:
    raise UserCodeError(REASON)
