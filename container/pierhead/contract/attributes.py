"""The tfs-* keys of the custom-attributes header: which model, version and method one request asks for.

The header is `key=value` pairs with commas between them; blanks around keys and values count for nothing, and
keys that are not ours belong to the user. nginx, the handler workers and the embedded model server read it
with the same patterns, so these hold for Python's `re` and for PCRE alike. Sources: the TensorFlow Serving
image's contract, section Requests, and field case C10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.contract.model_names import NAME_PATTERN
from pierhead.errors import Code, ServingError

__all__ = [
    "LABEL",
    "METHOD",
    "METHODS",
    "MODEL",
    "VERSION",
    "AttributeRule",
    "Attributes",
    "parse_attributes",
]

METHODS = ("predict", "classify", "regress")


@dataclass(frozen=True)
class AttributeRule:
    """A key, the pattern that its whole value must match, and the rule as a sentence would say it.

    `sure_pattern` matches values that need no look beyond the pattern, which is all that nginx can judge.
    """

    key: str
    pattern: str
    sure_pattern: str
    rule: str


MODEL = AttributeRule(
    "tfs-model-name",
    NAME_PATTERN,
    NAME_PATTERN,
    "a model's name: letters, digits, dot, dash and underscore",
)
VERSION = AttributeRule(
    "tfs-model-version", "[0-9]{1,19}", "[0-9]{1,18}", f"a whole number from 0 to {LARGEST_VERSION}"
)
LABEL = AttributeRule(
    "tfs-model-version-label",
    NAME_PATTERN,
    NAME_PATTERN,
    "a label: letters, digits, dot, dash and underscore",
)
METHOD = AttributeRule("tfs-method", "|".join(METHODS), "|".join(METHODS), f"one of {', '.join(METHODS)}")


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
