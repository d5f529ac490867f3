"""What the server asks of whatever executes a model.

A platform loads a folder and returns a runtime; the server knows models only through these two protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pierhead.formats.tensors import Array, Signature

__all__ = ["Platform", "Runtime"]


class Runtime(Protocol):
    """A loaded version of a model; its methods may be called from several threads at once."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The functions of the model, by name."""

    @property
    def defaults(self) -> Mapping[str, Mapping[str, Array]]:
        """Values for inputs that a gRPC request may leave out, by signature and input."""

    @property
    def feeds(self) -> Mapping[str, Mapping[str, str]]:
        """The graph's own names of inputs (`x:0`), by signature and input; messages show them."""

    @property
    def definitions(self) -> Mapping[str, bytes]:
        """The serialised SignatureDef messages, by name, as metadata answers show them."""

    def run(
        self,
        signature: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        in_caller: bool = False,
        timeout_ms: int = 0,
    ) -> dict[str, Array]:
        """Return the wanted outputs of a signature.

        `in_caller` keeps the run in the calling thread: cheaper for a short run, but a time limit does not
        reach it. `timeout_ms` of 0 is no limit. Raises ServingError with the operation's code and message.
        """

    def unload(self) -> None:
        """Give up what the model holds; no run may follow."""


class Platform(Protocol):
    """A kind of model that can be loaded."""

    def load(self, folder: Path) -> Runtime:
        """Return the model in a version's folder; raise ServingError where it cannot be loaded."""
