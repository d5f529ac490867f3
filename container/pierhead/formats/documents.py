"""What a body is once it was read, whatever its format: a request whose tensors follow from a signature."""

from __future__ import annotations

from typing import Protocol

from pierhead.formats.predict_json import PredictInputs
from pierhead.formats.tensors import Signature

__all__ = ["Document"]


class Document(Protocol):
    """A predict request; the model is looked up between its reading and the making of its tensors."""

    @property
    def signature_name(self) -> str:
        """The signature asked for; empty for the default one."""

    def tensors(self, signature: Signature) -> PredictInputs:
        """Return the tensors for a signature's inputs.

        Raises ServingError where they do not fit it, UnsupportedMediaType where no body of this type does.
        """
