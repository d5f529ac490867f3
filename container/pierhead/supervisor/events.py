"""What can arrive in the supervisor's inbox: small frozen facts, put there by handlers and threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pierhead.control import Message
from pierhead.errors import PierheadError

__all__ = [
    "ChildrenChanged",
    "Event",
    "FromNursery",
    "FromWorker",
    "LoadRequested",
    "ModelEvent",
    "ModelPrepared",
    "ModelRemoved",
    "ProbeAnswered",
    "SignalReceived",
    "UnloadRequested",
]

Answer = Callable[[PierheadError | None], None]


@dataclass(frozen=True)
class SignalReceived:
    """The supervisor was asked to stop, by this signal."""

    number: int


@dataclass(frozen=True)
class ChildrenChanged:
    """At least one child has ended and waits to be reaped."""


@dataclass(frozen=True)
class ProbeAnswered:
    """The process `name`, running as `pid`, answered its readiness probe."""

    name: str
    pid: int


@dataclass(frozen=True)
class FromWorker:
    """A handler worker, gunicorn's master for it, or a model server reported something."""

    message: Message


@dataclass(frozen=True)
class FromNursery:
    """The nursery that runs as `pid` said something."""

    pid: int
    message: Message


class ModelEvent:
    """What concerns the table of models."""


@dataclass(frozen=True)
class LoadRequested(ModelEvent):
    """A model is to be loaded; `answer` is called once, with None when it serves, else with the refusal."""

    name: str
    url: str
    answer: Answer


@dataclass(frozen=True)
class UnloadRequested(ModelEvent):
    """A model is to be unloaded; `answer` is called once, with None when nothing is left of it."""

    name: str
    answer: Answer


@dataclass(frozen=True)
class ModelPrepared(ModelEvent):
    """All that a model's processes need is there (a `PreparedModel`), or cannot be."""

    number: int
    result: Any


@dataclass(frozen=True)
class ModelRemoved(ModelEvent):
    """Nothing is left of a model's processes and files."""

    number: int


Event = SignalReceived | ChildrenChanged | ProbeAnswered | FromWorker | FromNursery | ModelEvent
