"""Which versions of a model are to be served: the vocabulary of the config file and of the version folders.

This module imports nothing of the package, so that both may use it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AllVersions", "LatestVersions", "SpecificVersions", "VersionPolicy"]


@dataclass(frozen=True)
class LatestVersions:
    """The `count` highest versions on disk."""

    count: int = 1


@dataclass(frozen=True)
class AllVersions:
    """Every version on disk."""


@dataclass(frozen=True)
class SpecificVersions:
    """The versions listed, as far as they are on disk."""

    versions: tuple[int, ...]


VersionPolicy = LatestVersions | AllVersions | SpecificVersions
