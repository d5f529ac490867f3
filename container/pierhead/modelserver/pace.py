"""How long the runs of a model take: measured, so that short ones may run where others wait.

Runs of one signature differ with the size of their inputs, so the figure is kept for each power of two of
bytes. It falls faster than it rises: a busy machine stretches runs that wait for a thread, and a figure that
such samples pushed up would never come down again.
"""

from __future__ import annotations

from collections.abc import Mapping

from pierhead.formats.tensors import Array

__all__ = ["Pace", "SizeClass", "size_class"]

SHORT_SECONDS = 0.001
RISE = 0.25
FALL = 0.5
OBJECT_BYTES = 64
SizeClass = tuple[str, int]


def size_class(signature: str, inputs: Mapping[str, Array]) -> SizeClass:
    """Return the signature with the power of two of its inputs' bytes; strings count by their number."""
    total = sum(
        array.size * OBJECT_BYTES if array.dtype.hasobject else array.nbytes for array in inputs.values()
    )
    return signature, total.bit_length()


class Pace:
    """The moving figures of one servable, in seconds."""

    def __init__(self) -> None:
        self._seconds: dict[SizeClass, float] = {}

    def is_short(self, kind: SizeClass) -> bool:
        """Return whether runs of this class are known to be short."""
        return self._seconds.get(kind, SHORT_SECONDS) < SHORT_SECONDS

    def record(self, kind: SizeClass, seconds: float) -> None:
        """Let one run move the figure of its class."""
        figure = self._seconds.get(kind, seconds)
        self._seconds[kind] = figure + (seconds - figure) * (RISE if seconds > figure else FALL)
