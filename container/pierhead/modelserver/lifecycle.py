"""The list of configured models: its first load, its changes, and a look at the disk from time to time.

Rules and messages: TensorFlow Serving's contract, sections 3.1 and 3.2. Different on purpose: where a model
new to the list has no base path, or no version there, the start or the reload fails at once instead of
waiting for ever, because in a container nothing will put it there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pierhead.errors import Code, ServingError
from pierhead.modelserver.loading import check_available, first_folders
from pierhead.modelserver.model_config import ModelConfig, check_served_type, models_of, read_config_file
from pierhead.modelserver.reconciling import Reconciler
from pierhead.modelserver.registry import Registry
from pierhead.modelserver.versions import aspired_versions

__all__ = ["Lifecycle"]

LOG = logging.getLogger(__name__)


class Lifecycle:
    """Keeps a registry at what the configured models ask for.

    `any_labels` lets a new label name a version that is not available.
    """

    def __init__(self, registry: Registry, reconciler: Reconciler, *, any_labels: bool = False) -> None:
        self._registry = registry
        self._reconciler = reconciler
        self._any_labels = any_labels
        self._models: dict[str, ModelConfig] = {}
        self._last_problem = ""
        # One change of the list at a time; a look at the disk never waits for the loads of a change.
        self._changing = threading.Lock()
        self._listing = threading.Lock()

    def start(self, models: tuple[ModelConfig, ...]) -> None:
        """Load the first models; return when each has a version available.

        Raises ServingError UNKNOWN naming what failed, FAILED_PRECONDITION for a label that is too early.
        """
        labels = self._checked_labels(models)
        folders = first_folders(models, "servable")
        self._models = {model.name: model for model in models}
        self._reconciler.start(folders)
        check_available(self._registry, folders, "servable")
        self._registry.replace_labels(labels)

    def reload(self, models: tuple[ModelConfig, ...]) -> None:
        """Replace the list; return when every model that is new in it has a version available.

        Raises ServingError as `start` does. Where a new model has nothing on disk the old list stays; where
        its versions do not load, or a label cannot be assigned, the new list does.
        """
        with self._changing:
            added = first_folders([model for model in models if model.name not in self._models], "model")
            with self._listing:
                gone = self._models.keys() - {model.name for model in models}
                self._models = {model.name: model for model in models}
            for name, versions in {**{name: {} for name in gone}, **added}.items():
                self._reconciler.aspire(name, versions)
            self.poll()
            self._reconciler.wait_until_loaded(added)
            check_available(self._registry, added, "model")
            self._registry.replace_labels(self._checked_labels(models))

    def reload_message(self, config: Any) -> None:
        """Replace the list by that of a ModelServerConfig message; raise ServingError where it cannot be."""
        check_served_type(config)
        self.reload(models_of(config, served=self._models.keys()))

    def reload_file(self, path: Path) -> None:
        """Replace the list by that of a config file; a bad one is logged and changes nothing.

        A file without a list changes nothing either: it may be half written.
        """
        try:
            config = read_config_file(path)
            if config.WhichOneof("config") is None:
                LOG.info("Taking no action for empty config.")
                return
            models = models_of(config, served=self._models.keys())
            if models != tuple(self._models.values()) or self._labels_of(models) != self._registry.labels():
                self.reload(models)
        except ServingError as problem:
            LOG.error("%s was not taken over: %s: %s", path, problem.code.name, problem.message)

    def poll(self) -> None:
        """Look for versions on disk; one missing base path skips the whole look, as in the original."""
        with self._listing:
            try:
                folders = {
                    model.name: aspired_versions(model.base_path, model.policy)
                    for model in self._models.values()
                }
            except (ServingError, OSError) as problem:
                self._tell_once(f"no look at the versions on disk: {problem}")
                return
            self._last_problem = ""
            for name, versions in folders.items():
                self._reconciler.aspire(name, versions)

    def stop(self, seconds: float) -> None:
        """Take every version out of service within about `seconds`."""
        self._reconciler.stop(seconds)

    def _tell_once(self, problem: str) -> None:
        """Log a problem of the disk, which would otherwise fill the log at every look."""
        if problem != self._last_problem:
            LOG.error("%s", problem)
        self._last_problem = problem

    def _labels_of(self, models: Iterable[ModelConfig]) -> dict[str, Mapping[str, int]]:
        return {model.name: model.labels for model in models if model.labels}

    def _checked_labels(self, models: Iterable[ModelConfig]) -> dict[str, Mapping[str, int]]:
        """Return the labels of a list; raise ServingError FAILED_PRECONDITION for one that is too early."""
        labels, assigned = self._labels_of(models), self._registry.labels()
        for name, versions in labels.items():
            available = self._registry.available_versions(name)
            for label, version in versions.items():
                is_new = label not in assigned.get(name, {})
                if version not in available and not (is_new and self._any_labels):
                    raise ServingError(
                        Code.FAILED_PRECONDITION,
                        f"Request to assign label to version {version} of model {name}, "
                        "which is not currently available for inference",
                    )
        return labels
