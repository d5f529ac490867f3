"""What the handlers ask of a model server, whatever speaks to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import grpc

from pierhead.control import ServerAddress
from pierhead.formats.tensors import Array, Signature
from pierhead.service.call import Call

__all__ = ["Backend", "Prediction", "RestAnswer"]


@dataclass(frozen=True)
class Prediction:
    """The outputs of a run by name, and the version that made them."""

    outputs: Mapping[str, Array]
    version: int


@dataclass(frozen=True)
class RestAnswer:
    """What the model server's REST API answered."""

    status: int
    content_type: str
    body: bytes


class Backend(Protocol):
    """Model servers that all serve the same models."""

    def next_server(self) -> ServerAddress:
        """Return the server that the next request should go to."""
        ...

    def served_version(self, model: str, version: int | None) -> int | None:
        """Return the version that last answered for these, or None before any did."""
        ...

    def channel(self, server: ServerAddress) -> grpc.Channel:
        """Return a channel to the server that the user's code may use, and may close."""
        ...

    def tells_signatures(self, call: Call) -> bool:
        """Return whether tensors can be made for the call's model; where not, JSON goes to `forward`."""
        ...

    def signature(self, call: Call, name: str) -> Signature:
        """Return the signature of that name; raise ServingError where the model has none."""
        ...

    def predict(self, call: Call, signature_name: str, inputs: Mapping[str, Array]) -> Prediction:
        """Run the model; raise ServingError with the model server's code and message."""
        ...

    def forward(self, call: Call, body: bytes) -> RestAnswer:
        """Return the REST answer to a JSON body, whatever its status; raise ServingError without one."""
        ...
