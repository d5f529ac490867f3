"""The loaded models of a multi-model endpoint, as the shared handler workers serve them.

The supervisor says which models there are by links in a folder, and every request reads its model's link: no
worker answers for a model that has been unloaded, or with what it knew of an earlier one of the same name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pierhead.contract.model_names import NAME_PATTERN
from pierhead.control import ServicePlan, read_plan
from pierhead.errors import Code, ControlError, ServingError
from pierhead.service.app import Service

__all__ = ["LoadedModels"]

NAME = re.compile(NAME_PATTERN)
PLAN = "plan.json"


@dataclass(frozen=True)
class LoadedModel:
    """The service of a model, and where its link led when that was made: to no other model, ever."""

    target: str
    service: Service


class LoadedModels:
    """Finds the service of a loaded model; `make` makes one from a model's plan."""

    def __init__(self, folder: Path, make: Callable[[ServicePlan], Service]) -> None:
        self._folder = folder
        self._make = make
        self._known: dict[str, LoadedModel] = {}

    def find(self, name: str) -> Service:
        """Return the service of a loaded model.

        Raises ServingError: INVALID_ARGUMENT for what is no name, NOT_FOUND where it is not loaded,
        UNAVAILABLE where it has handler workers of its own, which are away.
        """
        if NAME.fullmatch(name) is None:
            raise ServingError(Code.INVALID_ARGUMENT, f"{name[:300]!r} is no name of a model")
        target = self._target(name)
        known = self._known.get(name)
        if target is None:
            self._known.pop(name, None)
            raise _not_loaded(name)
        if known is None or known.target != target:
            known = self._known[name] = LoadedModel(target, self._make(self._read_plan(name, target)))
            self._forget_others()
        return known.service

    def _target(self, name: str) -> str | None:
        """Return where a model's link leads, None where there is none."""
        try:
            return os.readlink(f"{self._folder}/{name}")
        except OSError:
            return None

    def _read_plan(self, name: str, target: str) -> ServicePlan:
        try:
            plan = read_plan(self._folder / target / PLAN)
        except ControlError as problem:
            # It was unloaded since its link was read.
            raise _not_loaded(name) from problem
        if plan.hooks is not None:
            raise ServingError(Code.UNAVAILABLE, f"model '{name}' is being started again")
        return plan

    def _forget_others(self) -> None:
        """Let go of models that are gone; their connections end with the last request in flight."""
        for name, known in list(self._known.items()):
            if self._target(name) != known.target:
                self._known.pop(name, None)


def _not_loaded(name: str) -> ServingError:
    return ServingError(Code.NOT_FOUND, f"model '{name}' is not loaded")
