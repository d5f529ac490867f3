"""The versions of a model on disk, and which of them a policy asks for.

A version is a direct child of the base path whose name is an int64; `00000123` is 123. Source: TensorFlow
Serving's contract, section 3.1.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from pierhead.contract.artifact import LARGEST_VERSION
from pierhead.errors import Code, ServingError
from pierhead.modelserver.version_policy import LatestVersions, SpecificVersions, VersionPolicy

__all__ = ["aspired_versions", "find_versions", "warn_of_versions"]

LOG = logging.getLogger(__name__)
VERSION = re.compile(r"[0-9]+", re.ASCII)


def find_versions(base_path: Path) -> dict[int, Path]:
    """Return the folders of all versions below a base path; raise ServingError NOT_FOUND without one.

    Of two spellings of one number the first in the order of names is used.
    """
    if not base_path.is_dir():
        raise ServingError(Code.NOT_FOUND, f"Could not find base path {base_path}")
    found: dict[int, Path] = {}
    for child in sorted(base_path.iterdir()):
        version = _version_of(child)
        if version is not None:
            found.setdefault(version, child)
    return found


def aspired_versions(base_path: Path, policy: VersionPolicy) -> dict[int, Path]:
    """Return the folders of the versions that a policy asks for, the highest version first."""
    found = find_versions(base_path)
    ordered = sorted(found, reverse=True)
    if isinstance(policy, SpecificVersions):
        ordered = [version for version in ordered if version in policy.versions]
    elif isinstance(policy, LatestVersions):
        ordered = ordered[: policy.count]
    return {version: found[version] for version in ordered}


def warn_of_versions(base_path: Path, policy: VersionPolicy) -> None:
    """Log what the folders hold twice, and what a policy asks for and they lack."""
    found = find_versions(base_path)
    for child in base_path.iterdir():
        version = _version_of(child)
        if version is not None and found[version] != child:
            LOG.warning("version %d is there twice: %s is used, not %s", version, found[version], child)
    if isinstance(policy, SpecificVersions):
        for version in sorted(set(policy.versions) - set(found)):
            LOG.warning("version %d was asked for and is not at %s", version, base_path)


def _version_of(folder: Path) -> int | None:
    if VERSION.fullmatch(folder.name) and folder.is_dir() and int(folder.name) <= LARGEST_VERSION:
        return int(folder.name)
    return None
