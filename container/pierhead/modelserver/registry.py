"""The models and versions that the server knows, and the state of each.

A version goes START, LOADING, AVAILABLE, and END when it failed or was unloaded; ended versions stay in the
status answers. Loading may happen in several threads beside requests: every look-up and every change takes
the lock for the moment that it needs the table, never for the load itself. Source: TensorFlow Serving's
contract, sections 3.2 and 4.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

from pierhead.errors import Code, ServingError
from pierhead.modelserver.pace import Pace
from pierhead.modelserver.runtimes.base import Platform, Runtime

__all__ = ["Registry", "Retries", "Servable", "State", "VersionStatus"]

LOG = logging.getLogger(__name__)


class State(IntEnum):
    """The states of a version, by their numbers in GetModelStatus."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(frozen=True)
class VersionStatus:
    """What GetModelStatus tells of one version."""

    version: int
    state: State = State.START
    code: Code = Code.OK
    message: str = ""


@dataclass(frozen=True)
class Servable:
    """A version that can run, with the measured pace of its runs."""

    name: str
    version: int
    runtime: Runtime
    pace: Pace = field(default_factory=Pace, compare=False)


@dataclass(frozen=True)
class Retries:
    """How often a failed load is tried again, and the seconds between attempts."""

    count: int = 0
    seconds: float = 0.0


@dataclass
class _Model:
    statuses: dict[int, VersionStatus] = field(default_factory=dict)
    servables: dict[int, Servable] = field(default_factory=dict)


class Registry:
    """All models, by name and version."""

    def __init__(
        self, platform: Platform, retries: Retries, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self._platform = platform
        self._retries = retries
        self._pause = pause
        self._lock = threading.Lock()
        self._models: dict[str, _Model] = {}

    def find(self, name: str, version: int | None = None) -> Servable:
        """Return a version, or the highest available one; raise ServingError NOT_FOUND without it."""
        with self._lock:
            model = self._models.get(name)
            servables = model.servables if model else {}
            wanted = max(servables, default=None) if version is None else version
            servable = servables.get(wanted) if wanted is not None else None
        if servable is None:
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {request}")
        return servable

    def statuses(self, name: str, version: int | None = None) -> tuple[VersionStatus, ...]:
        """Return the status of one or all versions, highest first; raise ServingError NOT_FOUND for none."""
        with self._lock:
            model = self._models.get(name)
            known = dict(model.statuses) if model else {}
        if not known:
            raise ServingError(Code.NOT_FOUND, f"Could not find any versions of model {name}")
        if version is None:
            return tuple(known[each] for each in sorted(known, reverse=True))
        if version not in known:
            raise ServingError(Code.NOT_FOUND, f"Could not find version {version} of model {name}")
        return (known[version],)

    def load(self, name: str, version: int, folder: Path) -> VersionStatus:
        """Load a version, trying again as configured; return its status: AVAILABLE, or END and why."""
        self._set(name, VersionStatus(version, State.LOADING))
        for attempt in range(self._retries.count + 1):
            try:
                runtime = self._platform.load(folder)
            except ServingError as problem:
                LOG.error("model %s version %d did not load: %s", name, version, problem.message)
                ended = VersionStatus(version, State.END, problem.code, problem.message)
                if attempt < self._retries.count:
                    self._pause(self._retries.seconds)
            else:
                LOG.info("model loaded name=%s version=%d path=%s", name, version, folder)
                return self._add(Servable(name, version, runtime))
        self._set(name, ended)
        return ended

    def unload(self, name: str, version: int) -> None:
        """Take a version out of service; unknown ones are no error."""
        with self._lock:
            model = self._models.get(name)
            servable = model.servables.pop(version, None) if model else None
            if model is None or servable is None:
                return
            model.statuses[version] = replace(model.statuses[version], state=State.UNLOADING)
        servable.runtime.unload()
        self._set(name, VersionStatus(version, State.END))

    def unload_all(self) -> None:
        """Take every version out of service."""
        with self._lock:
            loaded = [(name, version) for name, model in self._models.items() for version in model.servables]
        for name, version in loaded:
            self.unload(name, version)

    def _set(self, name: str, status: VersionStatus) -> None:
        with self._lock:
            self._models.setdefault(name, _Model()).statuses[status.version] = status

    def _add(self, servable: Servable) -> VersionStatus:
        status = VersionStatus(servable.version, State.AVAILABLE)
        with self._lock:
            model = self._models.setdefault(servable.name, _Model())
            model.servables[servable.version] = servable
            model.statuses[servable.version] = status
        return status
