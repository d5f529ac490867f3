"""The states of a process and the moves between them that are legal. This module imports nothing of ours.

WAITING ── STARTING ── READY ─────────┐
             │   │       │            │
             │   └───────┴── BACKOFF ─┤  (and from BACKOFF back to STARTING)
             │                        │
             ├── DONE (ran once, exit 0)
             └── FATAL     STOPPING ── KILLING ── STOPPED
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

__all__ = ["LEGAL_MOVES", "State"]


class State(Enum):
    """Where a process is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    DONE = "done"
    BACKOFF = "backoff"
    FATAL = "fatal"
    STOPPING = "stopping"
    KILLING = "killing"
    STOPPED = "stopped"


LEGAL_MOVES: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.WAITING: frozenset({State.STARTING, State.STOPPED}),
        State.STARTING: frozenset(
            {State.READY, State.DONE, State.BACKOFF, State.FATAL, State.STOPPING, State.KILLING}
        ),
        State.READY: frozenset({State.BACKOFF, State.FATAL, State.STOPPING, State.KILLING}),
        State.BACKOFF: frozenset({State.STARTING, State.STOPPED}),
        State.STOPPING: frozenset({State.STOPPED, State.KILLING}),
        State.KILLING: frozenset({State.STOPPED}),
        State.DONE: frozenset(),
        State.FATAL: frozenset(),
        State.STOPPED: frozenset(),
    }
)
