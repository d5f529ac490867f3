"""How full the memory is that models are loaded into: the container's, or the machine's if that is less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pierhead.supervisor.memory_groups import MEMBERSHIP, MOUNT, memory_groups, read_counts

__all__ = ["MemoryUse", "memory_use"]

MEGABYTE = 1 << 20
KILOBYTE = 1 << 10
MACHINE = Path("/proc/meminfo")


@dataclass(frozen=True)
class MemoryUse:
    """Bytes used, of the bytes there are; cached files that the kernel drops at need are not used."""

    used: int
    limit: int

    @property
    def percent(self) -> float:
        """The share that is used."""
        return 100 * self.used / self.limit

    def describe(self) -> str:
        """Return it for a message, as in `21,900 of 24,576 MB`."""
        return f"{self.used // MEGABYTE:,} of {self.limit // MEGABYTE:,} MB"


def memory_use(
    membership: Path = MEMBERSHIP, mount: Path = MOUNT, machine: Path = MACHINE
) -> MemoryUse | None:
    """Return the use of what has the lowest limit: a control group of this process, or the machine.

    Of groups with the same limit the fullest counts. None where nothing can be read.
    """
    uses = (*_uses_of_groups(membership, mount), *_use_of_machine(machine))
    return min(uses, key=lambda use: (use.limit, -use.used), default=None)


def _uses_of_groups(membership: Path, mount: Path) -> Iterator[MemoryUse]:
    for group in memory_groups(membership, mount):
        limit, used = group.limit, group.used
        if limit is not None and used is not None:
            yield MemoryUse(used, limit)


def _use_of_machine(machine: Path) -> Iterator[MemoryUse]:
    counts = read_counts(machine)
    total, available = counts.get("MemTotal", 0), counts.get("MemAvailable", 0)
    if total > 0 and "MemAvailable" in counts:
        yield MemoryUse(max(0, total - available) * KILOBYTE, total * KILOBYTE)
