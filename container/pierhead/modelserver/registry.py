"""The models and versions that the server knows, and the state of each.

A version goes START, LOADING, AVAILABLE, UNLOADING, END; ended ones stay in the status answers. Loading and
unloading happen in several threads beside requests: every look-up and every change takes the lock for the
moment that it needs the table, never for the load itself.

A run holds the servable that it was given simply by its reference: a version that goes is out of the table
at once, and its runtime is closed when the last reference is dropped (see `draining`). Source: TensorFlow
Serving's contract, sections 3.1, 3.2 and 4.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from pierhead.errors import Code, ServingError
from pierhead.modelserver.draining import Withdrawn
from pierhead.modelserver.exhaustion import is_exhaustion
from pierhead.modelserver.pace import Pace
from pierhead.modelserver.runtimes.base import Platform, Runtime

__all__ = ["Registry", "Retries", "Servable", "State", "VersionStatus"]

LOG = logging.getLogger(__name__)
Pause = Callable[[threading.Event, float], object]


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
    """A version that can run, with the measured pace of its runs; whoever refers to it may run it."""

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
    labels: Mapping[str, int] = field(default_factory=dict)


class Registry:
    """All models, by name and version; `pause` waits between two attempts to load, or for an event."""

    def __init__(self, platform: Platform, retries: Retries, pause: Pause = threading.Event.wait) -> None:
        self._platform = platform
        self._retries = retries
        self._pause = pause
        self._lock = threading.Lock()
        self._models: dict[str, _Model] = {}

    def find(self, name: str, version: int | None = None, label: str | None = None) -> Servable:
        """Return a version, by number or label, or the highest available one.

        Raises ServingError NOT_FOUND without it, INVALID_ARGUMENT for an unknown label.
        """
        with self._lock:
            model = self._models.get(name)
            if label is not None:
                version = _version_labelled(model, label)
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

    def available_versions(self, name: str) -> frozenset[int]:
        """Return the versions of a model that requests can find."""
        with self._lock:
            model = self._models.get(name)
            return frozenset(model.servables) if model else frozenset()

    def labels(self) -> dict[str, Mapping[str, int]]:
        """Return the labels of all models, by the model's name."""
        with self._lock:
            return {name: model.labels for name, model in self._models.items() if model.labels}

    def replace_labels(self, labels: Mapping[str, Mapping[str, int]]) -> None:
        """Let these be the labels of all models, and the only ones."""
        with self._lock:
            for model in self._models.values():
                model.labels = {}
            for name, versions in labels.items():
                self._models.setdefault(name, _Model()).labels = dict(versions)

    def announce(self, name: str, version: int) -> None:
        """Show a version that is about to be loaded as START."""
        self._set(name, VersionStatus(version))

    def load(
        self,
        name: str,
        version: int,
        folder: Path,
        *,
        slot: AbstractContextManager[Any] | None = None,
        unwanted: threading.Event | None = None,
    ) -> VersionStatus:
        """Load a version, trying again as configured; return its status: AVAILABLE, or END and why.

        Each attempt, and no pause between two, happens inside `slot`. Setting `unwanted` ends the attempts.
        """
        self._set(name, VersionStatus(version, State.LOADING))
        outcome = self._load(folder, slot or nullcontext(), unwanted or threading.Event())
        if isinstance(outcome, ServingError):
            LOG.error("model %s version %d did not load: %s", name, version, outcome.message)
            status = VersionStatus(version, State.END, outcome.code, outcome.message)
            self._set(name, status)
            return status
        LOG.info("model loaded name=%s version=%d path=%s", name, version, folder)
        return self.add(Servable(name, version, outcome))

    def withdraw(self, name: str, version: int) -> Withdrawn | None:
        """Take a version out of service at once, and return it to be closed; None for an unknown one."""
        with self._lock:
            model = self._models.get(name)
            servable = model.servables.pop(version, None) if model else None
            if model is None or servable is None:
                return None
            going = model.statuses[version] = replace(model.statuses[version], state=State.UNLOADING)
        return Withdrawn(servable, servable.runtime, partial(self._end, name, going))

    def unload(self, name: str, version: int, seconds: float = math.inf) -> None:
        """Take a version out of service, wait for its runs, at most so long, and close it."""
        withdrawn = self.withdraw(name, version)
        if withdrawn:
            withdrawn.close(seconds)

    def unload_all(self, seconds: float = math.inf) -> None:
        """Take every version out of service, within about so many seconds."""
        deadline = time.monotonic() + seconds
        with self._lock:
            loaded = [(name, version) for name, model in self._models.items() for version in model.servables]
        for withdrawn in [self.withdraw(name, version) for name, version in loaded]:
            if withdrawn:
                withdrawn.close(max(deadline - time.monotonic(), 0.0))

    def _load(
        self, folder: Path, slot: AbstractContextManager[Any], unwanted: threading.Event
    ) -> Runtime | ServingError:
        """Return the runtime, or what the last attempt raised."""
        attempts_left = self._retries.count + 1
        while not unwanted.is_set():
            with slot:
                outcome = self._attempt(folder)
            attempts_left -= 1
            if not isinstance(outcome, ServingError) or not attempts_left:
                return outcome
            LOG.warning("%s is tried again in %g s: %s", folder, self._retries.seconds, outcome.message)
            self._pause(unwanted, self._retries.seconds)
        return ServingError(Code.CANCELLED, "the version was not wanted any more before it was loaded")

    def _attempt(self, folder: Path) -> Runtime | ServingError:
        try:
            return self._platform.load(folder)
        except ServingError as problem:
            # Its traceback refers to what was half loaded.
            return ServingError(problem.code, problem.message)
        except Exception as problem:
            LOG.exception("loading %s failed in a way that is not foreseen", folder)
            code = Code.RESOURCE_EXHAUSTED if is_exhaustion(problem) else Code.INTERNAL
            return ServingError(code, f"{type(problem).__name__}: {problem}")

    def add(self, servable: Servable) -> VersionStatus:
        """Put a version into service."""
        status = VersionStatus(servable.version, State.AVAILABLE)
        with self._lock:
            model = self._models.setdefault(servable.name, _Model())
            model.servables[servable.version] = servable
            model.statuses[servable.version] = status
        return status

    def _end(self, name: str, going: VersionStatus) -> None:
        """Note that a version is closed, unless it is being loaded anew meanwhile."""
        LOG.info("model unloaded name=%s version=%d", name, going.version)
        with self._lock:
            statuses = self._models[name].statuses
            if statuses[going.version] is going:
                statuses[going.version] = VersionStatus(going.version, State.END)

    def _set(self, name: str, status: VersionStatus) -> None:
        with self._lock:
            self._models.setdefault(name, _Model()).statuses[status.version] = status


def _version_labelled(model: _Model | None, label: str) -> int:
    version = model.labels.get(label) if model else None
    if version is None:
        raise ServingError(Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}")
    return version
