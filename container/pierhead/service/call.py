"""A request's way to a model: what is asked of which model server."""

from __future__ import annotations

from dataclasses import dataclass

from pierhead.control import ServerAddress

__all__ = ["Call"]


@dataclass(frozen=True)
class Call:
    """One request's way to a model; `version` is None for the newest, `timeout` is in seconds."""

    model: str
    version: int | None
    method: str
    server: ServerAddress
    timeout: float
