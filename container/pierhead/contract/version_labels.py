"""PIERHEAD_VERSION_LABELS: names for versions of models, such as `stable=1,canary=2,other:stable=7`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.contract.attributes import LABEL, VERSION

__all__ = ["VersionLabel", "VersionLabels", "parse_version_labels"]

ENTRY = re.compile(
    rf"(?:(?P<model>[^,:=]+):)?(?P<label>{LABEL.pattern})=(?P<version>{VERSION.pattern})", re.ASCII
)


@dataclass(frozen=True)
class VersionLabel:
    """A label of one version; `model` is None for the default model."""

    model: str | None
    label: str
    version: int

    def __str__(self) -> str:
        owner = "" if self.model is None else f"{self.model}:"
        return f"{owner}{self.label}={self.version}"


@dataclass(frozen=True)
class VersionLabels:
    """All labels, as text again what they were read from."""

    entries: tuple[VersionLabel, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.entries))

    def of_model(self, model: str, default_model: str) -> dict[str, int]:
        """Return the versions of a model by their labels."""
        return {
            entry.label: entry.version for entry in self.entries if (entry.model or default_model) == model
        }


def parse_version_labels(text: str) -> VersionLabels:
    """Return the labels of a list; raise ValueError, saying the rule, where it is none."""
    entries = tuple(_read_entry(part.strip()) for part in text.split(","))
    names = {(entry.model, entry.label) for entry in entries}
    if len(names) < len(entries):
        raise ValueError("must give each label of a model once")
    return VersionLabels(entries)


def _read_entry(text: str) -> VersionLabel:
    match = ENTRY.fullmatch(text)
    if match is None or int(match["version"]) > LARGEST_VERSION:
        raise ValueError("must be LABEL=VERSION or MODEL:LABEL=VERSION, separated by commas")
    return VersionLabel(match["model"], match["label"], int(match["version"]))
