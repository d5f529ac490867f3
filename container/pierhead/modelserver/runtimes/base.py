"""What the server asks of whatever executes a model.

A platform loads a folder and returns a runtime; the server knows models only through these two protocols.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pierhead.formats.tensors import Array, Signature
from pierhead.modelserver.waiter import Waiter

__all__ = ["DeferringRuntime", "Platform", "Runtime"]


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

    @property
    def steady(self) -> Container[str]:
        """The signatures whose runs take as long as the shapes of their inputs say, whatever the values."""

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


class DeferringRuntime(ABC):
    """A runtime whose runs wait for others, and that needs no thread of the caller for the wait."""

    @abstractmethod
    def begin(
        self,
        signature: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        waiter: Waiter,
        timeout_ms: int = 0,
    ) -> Callable[[], dict[str, Array]]:
        """Begin a run, and return what returns its outputs, or raises its error, once the waiter is told.

        A run whose waiter is gone before it begins is not done. Raises ServingError for a run that cannot
        wait.
        """


class Platform(Protocol):
    """A kind of model that can be loaded."""

    def load(self, folder: Path) -> Runtime:
        """Return the model in a version's folder; raise ServingError where it cannot be loaded."""
