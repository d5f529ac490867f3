"""Brings the versions that are served to those that are aspired to, model by model.

Whoever knows what a model should serve says so with `aspire`; a thread of that model then takes one step
after another until nothing is left to do. The order keeps the model available: an old version goes only when
an aspired one is AVAILABLE, or when no version is aspired to. A version that failed is not tried again
before it was given up and aspired to anew. Source: TensorFlow Serving's contract, section 3.2.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pierhead.modelserver.draining import Withdrawn
from pierhead.modelserver.registry import Registry
from pierhead.settings import available_cpus

__all__ = ["Load", "Reconciler", "Step", "Unload", "next_step"]


@dataclass(frozen=True)
class Load:
    """Load this version."""

    version: int


@dataclass(frozen=True)
class Unload:
    """Take this version out of service."""

    version: int


Step = Load | Unload


def next_step(aspired: Collection[int], tried: Collection[int], available: Collection[int]) -> Step | None:
    """Return what to do next; None when nothing is left.

    `tried` are the aspired versions that were loaded or failed; `available` those that serve, aspired to or
    not. Old versions go first, where that leaves one serving; then the highest new one is loaded.
    """
    superseded = set(available) - set(aspired)
    if superseded and (not aspired or set(available) & set(aspired)):
        return Unload(max(superseded))
    untried = set(aspired) - set(tried) - set(available)
    return Load(max(untried)) if untried else None


@dataclass
class _Keeper:
    """One model: what it aspires to, what of that was tried, and whether a thread is at work on it."""

    name: str
    aspired: dict[int, Path] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    unwanted: dict[int, threading.Event] = field(default_factory=dict)
    is_busy: bool = False

    def give_up(self, versions: Iterable[int]) -> None:
        """Let loads of these versions that are under way end before their next attempt."""
        for version in versions:
            if version in self.unwanted:
                self.unwanted[version].set()


class Reconciler:
    """Loads and unloads the versions of all models, each model's in a thread of its own.

    At most `load_threads` load and `unload_threads` close a version at a moment; 0 counts as 1.
    """

    def __init__(self, registry: Registry, *, load_threads: int = 0, unload_threads: int = 0) -> None:
        self._registry = registry
        self._load_slot = threading.BoundedSemaphore(max(load_threads, 1))
        self._unload_slot = threading.BoundedSemaphore(max(unload_threads, 1))
        self._keepers: dict[str, _Keeper] = {}
        self._closing = 0
        self._is_stopped = False
        self._settled = threading.Condition()

    def start(self, aspired: Mapping[str, Mapping[int, Path]]) -> None:
        """Load the first versions of all models side by side; return when each is AVAILABLE or failed."""
        keepers = [keeper for name, each in aspired.items() if (keeper := self._renewed(name, each))]
        if len(keepers) < 2:
            # A thread would have a malloc arena of its own: 5 MB that a forked server cannot share.
            for keeper in keepers:
                self._work(keeper, nullcontext())
            return
        with ThreadPoolExecutor(min(len(keepers), 4 * available_cpus())) as threads:
            for keeper in keepers:
                threads.submit(self._work, keeper, nullcontext())

    def aspire(self, name: str, versions: Mapping[int, Path]) -> None:
        """Let a model serve these versions and no others; return before that is done."""
        keeper = self._renewed(name, versions)
        if keeper:
            threading.Thread(
                target=self._work, args=(keeper, self._load_slot), name=f"versions of {name}", daemon=True
            ).start()

    def wait_until_loaded(self, names: Collection[str]) -> None:
        """Return when nothing is left to load for some models."""
        with self._settled:
            self._settled.wait_for(lambda: not self._busy_models() & set(names))

    def wait_until_settled(self, seconds: float) -> bool:
        """Return whether nothing is left to load or to close, at most `seconds` from now."""
        with self._settled:
            return self._settled.wait_for(lambda: not self._busy_models() and not self._closing, seconds)

    def stop(self, seconds: float) -> None:
        """Give up what is not loaded yet, and take every version out of service within about `seconds`."""
        deadline = time.monotonic() + seconds
        with self._settled:
            self._is_stopped = True
            for keeper in self._keepers.values():
                keeper.give_up(keeper.aspired)
        self.wait_until_settled(seconds)
        self._registry.unload_all(max(deadline - time.monotonic(), 0.0))

    def _renewed(self, name: str, versions: Mapping[int, Path]) -> _Keeper | None:
        """Return a model that somebody has to work on now; None where there is nothing to do, or a worker."""
        with self._settled:
            keeper = self._keepers.setdefault(name, _Keeper(name))
            keeper.give_up(keeper.aspired.keys() - versions.keys())
            available = self._registry.available_versions(name)
            for version in versions.keys() - keeper.aspired.keys() - available:
                self._registry.announce(name, version)
            keeper.aspired = dict(versions)
            keeper.tried &= versions.keys()
            if keeper.is_busy or self._step(keeper) is None:
                return None
            keeper.is_busy = True
            return keeper

    def _busy_models(self) -> set[str]:
        return {keeper.name for keeper in self._keepers.values() if keeper.is_busy}

    def _step(self, keeper: _Keeper) -> Step | None:
        if self._is_stopped:
            return None
        return next_step(keeper.aspired, keeper.tried, self._registry.available_versions(keeper.name))

    def _work(self, keeper: _Keeper, load_slot: AbstractContextManager[Any]) -> None:
        while move := self._next_move(keeper, load_slot):
            move()

    def _unload(self, name: str, version: int) -> None:
        """Withdraw a version; a thread waits for its runs, so that a long one holds up nothing else."""
        withdrawn = self._registry.withdraw(name, version)
        if withdrawn:
            with self._settled:
                self._closing += 1
            threading.Thread(
                target=self._close, args=(withdrawn,), name=f"closing {name} {version}", daemon=True
            ).start()

    def _close(self, withdrawn: Withdrawn) -> None:
        withdrawn.close(slot=self._unload_slot)
        with self._settled:
            self._closing -= 1
            self._settled.notify_all()

    def _next_move(
        self, keeper: _Keeper, load_slot: AbstractContextManager[Any]
    ) -> Callable[[], object] | None:
        """Return what carries out the next step; None when the worker may end."""
        with self._settled:
            step = self._step(keeper)
            match step:
                case Load(version):
                    unwanted = threading.Event()
                    keeper.unwanted = {version: unwanted}
                    keeper.tried.add(version)
                    folder = keeper.aspired[version]
                    load = partial(self._registry.load, keeper.name, version, folder)
                    return partial(load, slot=load_slot, unwanted=unwanted)
                case Unload(version):
                    return partial(self._unload, keeper.name, version)
                case None:
                    keeper.is_busy = False
                    self._settled.notify_all()
                    return None
