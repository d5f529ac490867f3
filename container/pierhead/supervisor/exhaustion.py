"""Whether the last words of a program that has ended say that memory was lacking."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["says_exhausted"]

LAST_WORDS = re.compile(
    r"out of memory|terminate called after throwing an instance of 'std::bad_alloc'|\s*what\(\):\s+std::bad_alloc"
    r"|Failed to start server\. Error: (?:RESOURCE_EXHAUSTED|Resource exhausted): .*",
    re.IGNORECASE,
)


def says_exhausted(last_lines: Sequence[str]) -> bool:
    """Return whether the last line is one that programs print for nothing else."""
    return bool(last_lines) and LAST_WORDS.fullmatch(last_lines[-1]) is not None
