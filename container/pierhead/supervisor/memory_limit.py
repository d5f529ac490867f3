"""How much memory the container may use, by its control group: a killed process most often ran out of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["describe_want", "memory_limit"]

MEGABYTE = 1 << 20
UNLIMITED = 1 << 60  # version 1 writes a number near 2**63 for no limit
MEMBERSHIP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def memory_limit(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int | None:
    """Return the lowest limit in bytes of the groups that this process is in, None without one."""
    limits = [limit for file in _limit_files(membership, mount) if (limit := _read_limit(file)) is not None]
    return min(limits, default=None)


def describe_want(limit: int | None) -> str:
    """Return the sentence's end for a process that was killed outright."""
    bound = "" if limit is None else f" (the container has {limit // MEGABYTE} MB)"
    return f", perhaps for want of memory{bound}"


def _limit_files(membership: Path, mount: Path) -> Iterator[Path]:
    """Yield where a limit may be written; in a container the mounted root is the container's own group."""
    yield mount / "memory.max"
    yield mount / "memory" / "memory.limit_in_bytes"
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                yield mount / group.lstrip("/") / "memory.max"
            elif "memory" in controllers.split(","):
                yield mount / "memory" / group.lstrip("/") / "memory.limit_in_bytes"


def _read_limit(file: Path) -> int | None:
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):
        return None
    return limit if limit < UNLIMITED else None
