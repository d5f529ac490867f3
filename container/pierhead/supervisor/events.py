"""What can arrive in the supervisor's inbox: small frozen facts, put there by handlers and threads."""

from __future__ import annotations

from dataclasses import dataclass

from pierhead.control import Message

__all__ = ["ChildrenChanged", "Event", "FromNursery", "FromWorker", "ProbeAnswered", "SignalReceived"]


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
    """A handler worker, or gunicorn's master for it, reported something."""

    message: Message


@dataclass(frozen=True)
class FromNursery:
    """The nursery that runs as `pid` said something."""

    pid: int
    message: Message


Event = SignalReceived | ChildrenChanged | ProbeAnswered | FromWorker | FromNursery
