"""The grammar of models' names, in patterns that hold for Python's `re` and for PCRE alike.

SageMaker makes up the names at a multi-model endpoint; nothing follows from them. None can be a hidden file,
a path or an option, or end a line of a log. Source: SageMaker's platform contract, section 2.
"""

from __future__ import annotations

__all__ = ["LONGEST_NAME", "NAME_PATTERN", "name_pattern"]

LONGEST_NAME = 255


def name_pattern(shortest: int, longest: int) -> str:
    """Return the pattern of names with a number of characters within bounds."""
    return f"[A-Za-z0-9][A-Za-z0-9._-]{{{shortest - 1},{longest - 1}}}"


NAME_PATTERN = name_pattern(1, LONGEST_NAME)
