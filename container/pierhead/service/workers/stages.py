"""Where a worker is in its life, as gunicorn's master and the worker both see it."""

from __future__ import annotations

import mmap
from enum import IntEnum

__all__ = ["SharedStage", "Stage"]


class Stage(IntEnum):
    """BOOTING until the hooks are loaded; RETIRING asks for a successor; LEAVING was told to end."""

    BOOTING = 0
    READY = 1
    RETIRING = 2
    LEAVING = 3


class SharedStage:
    """A stage in a byte of memory that is shared over the fork."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    @property
    def value(self) -> Stage:
        """The stage now."""
        return Stage(self._byte[0])

    def move_to(self, stage: Stage) -> bool:
        """Go on to a later stage; return whether that is news."""
        is_news = stage > self.value
        if is_news:
            self._byte[0] = stage
        return is_news
