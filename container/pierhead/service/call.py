"""A request's way to a model: what is asked of which model server."""

from __future__ import annotations

from dataclasses import dataclass

from pierhead.control import ServerAddress

__all__ = ["NO_SERVER", "Call", "Servable"]

# Where no model server runs.
NO_SERVER = ServerAddress(0, 0)
Servable = tuple[str, int | None, str | None]


@dataclass(frozen=True)
class Call:
    """One request's way to a model; `timeout` is in seconds.

    At most one of `version` and `label` is given; without either it is for the newest version.
    """

    model: str
    version: int | None
    method: str
    server: ServerAddress
    timeout: float
    label: str | None = None

    @property
    def servable(self) -> Servable:
        """Return what chooses a version: model, number and label."""
        return self.model, self.version, self.label
