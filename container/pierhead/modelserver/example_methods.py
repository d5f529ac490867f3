"""Methods that take tf.Examples: what one asks of a signature, and what it makes of the outputs.

Both doors hand over serialised examples; the signature's one input, `inputs`, takes them as strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature

__all__ = ["INPUTS", "ExamplesMethod", "describe", "refused"]

INPUTS = "inputs"
Result = TypeVar("Result")


@dataclass(frozen=True)
class ExamplesMethod(Generic[Result]):
    """A method by its API's name, the noun in its messages and TensorFlow's name of it.

    `outputs` returns the outputs to fetch from a signature, and raises ServingError where it does not suit;
    `read` makes the result for so many examples of what they held, and raises ServingError likewise.
    """

    api: str
    noun: str
    method_name: str
    outputs: Callable[[Signature], tuple[str, ...]]
    read: Callable[[Mapping[str, Array], int], Result]

    def check_method_name(self, signature: Signature) -> None:
        """Raise ServingError INVALID_ARGUMENT for a signature that was made for another method."""
        if signature.method_name != self.method_name:
            raise refused(
                f"Expected {self.noun} signature method_name to be {self.method_name}. "
                f"Was: {signature.method_name}"
            )


def refused(message: str, code: Code = Code.INVALID_ARGUMENT) -> ServingError:
    """Return the refusal with a message of the contract."""
    return ServingError(code, message)


def describe(signature: Signature) -> str:
    """Return a signature as messages show it."""
    sides = {"inputs": signature.inputs, "outputs": signature.outputs}
    tensors = [
        f"{side} {{ {name}: {spec.dtype} }}" for side, specs in sides.items() for name, spec in specs.items()
    ]
    return " ".join([*tensors, f'method_name: "{signature.method_name}"'])
