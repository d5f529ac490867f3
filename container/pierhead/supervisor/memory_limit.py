"""How much memory the container may use, by its control group: a killed process most often ran out of it."""

from __future__ import annotations

from pathlib import Path

from pierhead.supervisor.memory_groups import MEMBERSHIP, MOUNT, memory_groups

__all__ = ["describe_want", "memory_limit"]

MEGABYTE = 1 << 20


def memory_limit(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int | None:
    """Return the lowest limit in bytes of the groups that this process is in, None without one."""
    limits = (group.limit for group in memory_groups(membership, mount))
    return min((limit for limit in limits if limit is not None), default=None)


def describe_want(limit: int | None) -> str:
    """Return the sentence's end for a process that was killed outright."""
    bound = "" if limit is None else f" (the container has {limit // MEGABYTE} MB)"
    return f", perhaps for want of memory{bound}"
