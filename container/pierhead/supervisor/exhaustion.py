"""Whether the last words of a program that has ended say that memory, or room for a thread, was lacking.

Each pattern is a whole line that a program or the C library prints for nothing else. A model's name, a path
or a tensor's name can hold any text, so nothing is looked for within a line: it is read from its beginning,
and what a user may have named stands only where it does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["says_exhausted"]

CODE = r"(?:RESOURCE_EXHAUSTED|Resource exhausted): "
# Of one model that failed. A second "} due to error: " would be of a name, or come after one: it is not read.
TEXT = r"(?:(?!\} due to error: ).)+"
ONE_MODEL = (
    r"(?:UNKNOWN|Unknown): 1 servable\(s\) did not become available: "
    rf"\{{{{2,3}}name: {TEXT} version: \d+\}} due to error: {CODE}(?={TEXT}\Z)"
)
WANT = r"(?:Cannot allocate memory|Resource temporarily unavailable)"
LAST_WORDS = re.compile(
    "|".join(
        (
            r"(?i:out of memory)\.?",
            r"terminate called after throwing an instance of 'std::bad_alloc'",
            r"\s*what\(\):\s+std::bad_alloc",
            rf"Failed to start server\. Error: (?:{CODE}|{ONE_MODEL}).*",
            r"OSError: \[Errno 12\] Cannot allocate memory(?:: .*)?",
            r"MemoryError(?:: Unable to allocate [\d.]+ \w+ for an array with shape .*)?",
            r"/[^:]*: error while loading shared libraries: [^:]+: [a-z -]+: Cannot allocate memory",
            rf"/[^:]*: (?:line \d+: |\d+: )?(?:fork|vfork|Cannot fork): {WANT}",
            r"\S*/env\.cc:\d+\] Check failed: ret == 0 \(1[12] vs\. 0\) ?"
            r"Thread \S* ?creation via pthread_create\(\) failed\.",
        )
    )
)
EPILOGUE = re.compile(
    r"Aborted(?: \(core dumped\))?|\*\*\* Check failure stack trace: \*\*\*|\s+@ +0x[0-9a-f]+ .*"
)


def says_exhausted(last_lines: Sequence[str]) -> bool:
    """Return whether the last line, before a stack's trace, is one that tells of a want and of nothing else.

    The lines are those of the log, without the time and level that TensorFlow begins with.
    """
    words = [line for line in last_lines if not EPILOGUE.fullmatch(line)]
    return bool(words) and LAST_WORDS.fullmatch(words[-1]) is not None
