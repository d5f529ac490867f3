"""What a server's processes own: memory that ends with them, and ports."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["anonymous_megabytes", "family", "listening_ports", "megabytes", "private_megabytes", "program"]

PRIVATE = re.compile(r"Private_(?:Clean|Dirty):\s+(\d+)")
ANONYMOUS = re.compile(r"^Anonymous:\s+(\d+)", re.MULTILINE)
PROPORTIONAL = re.compile(r"^Pss:\s+(\d+)", re.MULTILINE)
LISTENING = "0A"


def family(pid: int) -> list[int]:
    """Return a process and all below it, without those that end meanwhile."""
    members = [pid]
    for member in members:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{member}/task").iterdir():
                members += map(int, (task / "children").read_text().split())
    return [member for member in members if _is_alive(member)]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def megabytes(pids: Iterable[int]) -> float:
    """Return the memory of these processes together: what some share counts once (PSS)."""
    return _megabytes(pids, PROPORTIONAL)


def private_megabytes(pids: Iterable[int]) -> float:
    """Return the memory that each has for itself alone (USS), in sum."""
    return _megabytes(pids, PRIVATE)


def anonymous_megabytes(pids: Iterable[int]) -> float:
    """Return the memory that is no file's, in sum: what others on the machine map has no part in it."""
    return _megabytes(pids, ANONYMOUS)


def _megabytes(pids: Iterable[int], line: re.Pattern[str]) -> float:
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            kilobytes += sum(map(int, line.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())))
    return kilobytes / 1024


def program(pid: int) -> str:
    """Return what a process runs: a module of Python's, or else its title; empty where it is gone."""
    with contextlib.suppress(OSError):
        title = Path(f"/proc/{pid}/comm").read_text().strip()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        if title.startswith("python") and "-m" in words:
            return words[words.index("-m") + 1]
        return title
    return ""


def listening_ports(pids: Iterable[int]) -> set[int]:
    """Return the TCP ports on which these processes listen."""
    owned = {link for pid in pids for link in _sockets(pid)}
    ports = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and fields[9] in owned:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _sockets(pid: int) -> set[str]:
    inodes = set()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[len("socket:[") : -1])
    return inodes
