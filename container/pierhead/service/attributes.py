"""The tfs-* keys of the custom-attributes header: which model, version and method one request asks for.

The header is `key=value` pairs with commas between them; blanks around keys and values count for nothing, and
keys that are not ours belong to the user. The patterns are constants because nginx applies the same rule.
Sources: the TensorFlow Serving image's contract, section Requests, and field case C10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.errors import Code, ServingError

__all__ = ["METHODS", "METHOD_PATTERN", "MODEL_PATTERN", "VERSION_PATTERN", "Attributes", "parse_attributes"]

METHODS = ("predict", "classify", "regress")
MODEL_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
VERSION_PATTERN = "[0-9]{1,19}"
METHOD_PATTERN = "|".join(METHODS)


@dataclass(frozen=True)
class Attributes:
    """What a request asks for; None where it leaves the choice to the container."""

    model: str | None = None
    version: int | None = None
    method: str = "predict"


def parse_attributes(header: str) -> Attributes:
    """Return what the header asks for.

    Where a key is repeated, its last value counts. Raises ServingError (INVALID_ARGUMENT) for a value that
    breaks its key's rule.
    """
    values = dict(_pairs(header))
    return Attributes(
        model=_read_model(values.get("tfs-model-name")),
        version=_read_version(values.get("tfs-model-version")),
        method=_read_method(values.get("tfs-method", "predict")),
    )


def _pairs(header: str) -> list[tuple[str, str]]:
    pairs = (pair.partition("=") for pair in header.split(","))
    return [(key.strip(" \t"), value.strip(" \t")) for key, _, value in pairs]


def _read_model(text: str | None) -> str | None:
    if text is not None and re.fullmatch(MODEL_PATTERN, text) is None:
        raise _refusal("tfs-model-name", text, "a model's name: letters, digits, dot, dash and underscore")
    return text


def _read_version(text: str | None) -> int | None:
    if text is None:
        return None
    if re.fullmatch(VERSION_PATTERN, text) is None or int(text) > LARGEST_VERSION:
        raise _refusal("tfs-model-version", text, f"a whole number from 0 to {LARGEST_VERSION}")
    return int(text)


def _read_method(text: str) -> str:
    if text not in METHODS:
        raise _refusal("tfs-method", text, f"one of {', '.join(METHODS)}")
    return text


def _refusal(key: str, text: str, rule: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, f"custom attribute {key}={text!r} must be {rule}")
