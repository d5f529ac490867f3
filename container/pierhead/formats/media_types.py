"""Media types by name, and which of them an Accept header asks for (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pierhead.errors import NotAcceptable

__all__ = ["CSV", "JSON", "JSON_LINES", "NPY", "NPZ", "RAW", "choose", "is_raw", "media_type"]

JSON = "application/json"
# SageMaker's name first, then those that its SDK and its containers use beside it.
JSON_LINES = (
    "application/jsonlines",
    "application/jsons",
    "application/x-jsonlines",
    "application/json-lines",
)
CSV = "text/csv"
NPY = "application/x-npy"
NPZ = "application/x-npz"
# Types whose body is one string for the model: names, and families.
RAW = (
    "application/octet-stream",
    "application/x-image",
    "application/x-tfexample",
    "text/plain",
    "image/*",
    "audio/*",
)


@dataclass(frozen=True)
class Preference:
    """One entry of an Accept header: `application/json`, `text/*` or `*/*`, and its weight."""

    range: str
    weight: float

    def covers(self, name: str) -> bool:
        """Tell whether a media type is within the range."""
        return self.range in (name, "*/*", f"{name.partition('/')[0]}/*")

    @property
    def specificity(self) -> int:
        """How closely the range is drawn: 0 for `*/*`, 1 for `text/*`, 2 for one type."""
        return 2 - self.range.count("*")


def media_type(text: str) -> str:
    """Return the name in a Content-Type: without parameters, in lower case."""
    return text.partition(";")[0].strip().lower()


def is_raw(name: str) -> bool:
    """Tell whether a body of a media type is one string for the model."""
    return name in RAW or f"{name.partition('/')[0]}/*" in RAW


def choose(accept: str, supported: Sequence[str]) -> str:
    """Return the supported type of the highest weight, of equal ones that which is asked for first.

    A wildcard means the first of `supported` that is not refused (`q=0`). Raises NotAcceptable where there
    is none.
    """
    preferences = list(_preferences(accept))
    refused = {name for name in supported if _weight(name, preferences) == 0}
    for preference in sorted(preferences, key=lambda each: -each.weight):
        for name in supported:
            if preference.weight and preference.covers(name) and name not in refused:
                return name
    raise NotAcceptable(f"nothing in Accept: {accept} can be written; supported: {_listed(supported)}")


def _preferences(accept: str) -> Iterator[Preference]:
    for entry in accept.split(","):
        name = media_type(entry)
        if name:
            # Some clients send a lone asterisk.
            yield Preference("*/*" if name == "*" else name, _quality(entry))


def _quality(entry: str) -> float:
    """Return the entry's weight; one that is no number counts as if absent."""
    for parameter in entry.split(";")[1:]:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 1.0
    return 1.0


def _weight(name: str, preferences: Iterable[Preference]) -> float:
    """Return the weight that the closest range gives to a type."""
    covering = [each for each in preferences if each.covers(name)]
    return max(covering, key=lambda each: each.specificity).weight if covering else 0.0


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
