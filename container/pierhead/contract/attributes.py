"""The tfs-* keys of the custom-attributes header and the rule of each one's value.

nginx and the handler workers read the header with the same patterns, so these hold for Python's `re` and for
PCRE alike. Source: the TensorFlow Serving image's contract, section Requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.contract.model_names import NAME_PATTERN

__all__ = ["LABEL", "METHOD", "METHODS", "MODEL", "VERSION", "AttributeRule"]

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
