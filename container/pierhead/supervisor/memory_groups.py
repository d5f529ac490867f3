"""Reads the memory control groups that this process is in, of both versions; unreadable files tell nothing.

In a container the mounted root is the container's own group; elsewhere the group is below it, and each group
above bounds it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["MEMBERSHIP", "MOUNT", "MemoryGroup", "memory_groups", "read_counts"]

UNLIMITED = 1 << 60  # version 1 writes a number near 2**63 for no limit
MEMBERSHIP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Names:
    """What one version calls its files and the counts in memory.stat."""

    limit: str
    usage: str
    inactive_file: str
    active_file: str
    mapped_file: str


VERSION_1 = Names(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
    "total_active_file",
    "total_mapped_file",
)
VERSION_2 = Names("memory.max", "memory.current", "inactive_file", "active_file", "file_mapped")


@dataclass(frozen=True)
class MemoryGroup:
    """One group; what it counts is read anew each time, in bytes, None where it cannot be read."""

    folder: Path
    names: Names

    @property
    def limit(self) -> int | None:
        """The limit; version 1 also tells of that of a group above which cannot be seen from here."""
        above = self._statistics().get("hierarchical_memory_limit")
        limits = (_read_number(self.folder / self.names.limit), above)
        return min((limit for limit in limits if limit is not None and 0 < limit < UNLIMITED), default=None)

    @property
    def used(self) -> int | None:
        """What is used, without the cached files that no process has mapped: those the kernel drops."""
        usage = _read_number(self.folder / self.names.usage)
        counts, names = self._statistics(), self.names
        cached = counts.get(names.inactive_file, 0) + counts.get(names.active_file, 0)
        droppable = max(0, cached - counts.get(names.mapped_file, 0))
        return None if usage is None else max(0, usage - droppable)

    def _statistics(self) -> Mapping[str, int]:
        return read_counts(self.folder / "memory.stat")


def memory_groups(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> tuple[MemoryGroup, ...]:
    """Return the groups that may bound this process: some may not exist, or have no limit."""
    return tuple(dict.fromkeys(_find_groups(membership, mount)))


def read_counts(file: Path) -> Mapping[str, int]:
    """Return the numbers of a file whose lines are a name, perhaps with a colon, and a number."""
    words = (line.split() for line in _read(file).splitlines())
    named = ((line[0].removesuffix(":"), _number(line[1])) for line in words if len(line) > 1)
    return {name: number for name, number in named if number is not None}


def _find_groups(membership: Path, mount: Path) -> Iterator[MemoryGroup]:
    yield MemoryGroup(mount, VERSION_2)
    yield MemoryGroup(mount / "memory", VERSION_1)
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        path = PurePosixPath(group.strip("/"))
        for each in (path, *path.parents):
            if not controllers:
                yield MemoryGroup(mount / each, VERSION_2)
            elif "memory" in controllers.split(","):
                yield MemoryGroup(mount / "memory" / each, VERSION_1)


def _read(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes())
    except (OSError, ValueError):
        return ""


def _read_number(file: Path) -> int | None:
    return _number(_read(file))


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
