"""One model of a multi-model endpoint, from the request to load it to the removal of its last file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from pierhead.control import ServerAddress
from pierhead.errors import ServingError
from pierhead.supervisor.events import Answer, LoadRequested
from pierhead.supervisor.group import ProcessGroup
from pierhead.supervisor.probes import Probe
from pierhead.supervisor.process import ProcessSpec

__all__ = ["Model", "ModelState", "PreparedModel"]


class ModelState(Enum):
    """Where a model is in its life; it goes down this list, and may skip what it does not reach."""

    PREPARING = "is being prepared"
    STARTING = "is being loaded"
    LOADED = "is loaded"
    ENDING = "is being unloaded"
    REMOVING = "is being removed"


@dataclass(frozen=True)
class PreparedModel:
    """All that a model's processes need; `workers` names the one that is the master of handler workers.

    `at_sockets` names those that take invocations from the sockets in its folder, where any do: its handler
    workers, which find their way between model servers by themselves, or else all its model servers.
    """

    folder: Path
    addresses: tuple[ServerAddress, ...]
    specs: tuple[ProcessSpec, ...]
    probes: Mapping[str, Probe]
    workers: str
    at_sockets: tuple[str, ...]


@dataclass
class Model:
    """A model as the table knows it.

    `deadline` is that of its load, later that of its end. `loader` waits for the load, `unloaders` for the
    end, and `latecomers` came too late for either. `postponed` are loads of the same name, to begin when
    nothing is left of this one. `failure` is why the model ends, where nobody asked for that. `is_direct`:
    nginx goes straight to its sockets.
    """

    number: int
    name: str
    url: str
    loader: Answer | None
    requested: float
    deadline: float | None
    state: ModelState = ModelState.PREPARING
    prepared: PreparedModel | None = None
    group: ProcessGroup | None = None
    failure: ServingError | None = None
    is_preparing: bool = True
    is_direct: bool = False
    unloaders: list[Answer] = field(default_factory=list)
    latecomers: list[Answer] = field(default_factory=list)
    postponed: list[LoadRequested] = field(default_factory=list)

    @property
    def is_starting(self) -> bool:
        """Whether its load is under way."""
        return self.state in (ModelState.PREPARING, ModelState.STARTING)

    @property
    def is_going(self) -> bool:
        """Whether it ends, or has ended and is not yet forgotten."""
        return self.state in (ModelState.ENDING, ModelState.REMOVING)

    @property
    def is_over(self) -> bool:
        """Whether none of its processes runs, and none will."""
        return not self.is_preparing and (self.group is None or self.group.is_over)
