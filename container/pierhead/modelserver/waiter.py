"""Whoever waits for a run that waits for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Waiter"]


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Waiter:
    """Is told when a run is over, and asked before it begins whether anybody still wants it.

    `ready` is called once, `is_gone` any number of times; both from any thread, and neither may raise.
    """

    ready: Callable[[], None]
    is_gone: Callable[[], bool] = _never
