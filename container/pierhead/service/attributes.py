"""The tfs-* keys of the custom-attributes header: which model, version and method one request asks for.

The header is `key=value` pairs with commas between them; blanks around keys and values count for nothing, and
keys that are not ours belong to the user. nginx applies the same rules, of `pierhead.contract.attributes`,
to what it can judge, and sends the rest here. Sources: the TensorFlow Serving image's contract, section
Requests, and field case C10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.contract.attributes import LABEL, METHOD, MODEL, VERSION, AttributeRule
from pierhead.errors import Code, ServingError

__all__ = ["Attributes", "parse_attributes"]


@dataclass(frozen=True)
class Attributes:
    """What a request asks for; None where it leaves the choice to the container."""

    model: str | None = None
    version: int | None = None
    label: str | None = None
    method: str = "predict"


def parse_attributes(header: str) -> Attributes:
    """Return what the header asks for.

    Where a key is repeated, its last value counts. Raises ServingError (INVALID_ARGUMENT) for a value that
    breaks its key's rule, and where both a version and a label are asked for.
    """
    values = dict(_pairs(header))
    model, version, label, method = (_read(rule, values) for rule in (MODEL, VERSION, LABEL, METHOD))
    if version is not None and label is not None:
        raise ServingError(
            Code.INVALID_ARGUMENT, f"custom attributes {VERSION.key} and {LABEL.key} exclude each other"
        )
    return Attributes(model, None if version is None else int(version), label, method or "predict")


def _pairs(header: str) -> list[tuple[str, str]]:
    pairs = (pair.partition("=") for pair in header.split(","))
    return [(key.strip(" \t"), value.strip(" \t")) for key, _, value in pairs]


def _read(rule: AttributeRule, values: dict[str, str]) -> str | None:
    text = values.get(rule.key)
    if text is None:
        return None
    if re.fullmatch(rule.pattern, text) is None or (rule is VERSION and int(text) > LARGEST_VERSION):
        raise ServingError(Code.INVALID_ARGUMENT, f"custom attribute {rule.key}={text!r} must be {rule.rule}")
    return text
