"""What a model needs in order to be served at all: versions on disk, and one of them available.

Messages: TensorFlow Serving's contract, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pierhead.errors import Code, ModelFailure, ModelsUnavailable, ServingError
from pierhead.modelserver.model_config import ModelConfig
from pierhead.modelserver.registry import Registry
from pierhead.modelserver.versions import aspired_versions, warn_of_versions

__all__ = ["check_available", "first_folders"]


def first_folders(models: Iterable[ModelConfig], noun: str) -> dict[str, dict[int, Path]]:
    """Return the folders of the versions that each model's policy asks for, by the model's name.

    Raises ModelsUnavailable that counts in `noun`s the models without any.
    """
    folders: dict[str, dict[int, Path]] = {}
    failures: dict[ModelFailure, str] = {}
    for model in models:
        try:
            warn_of_versions(model.base_path, model.policy)
            folders[model.name] = aspired_versions(model.base_path, model.policy)
        except ServingError as problem:
            failures[ModelFailure(model.name, None, problem.code)] = problem.message
            continue
        if not folders[model.name]:
            message = f"No versions of servable {model.name} found under base path {model.base_path}"
            failures[ModelFailure(model.name, None, Code.NOT_FOUND)] = message
    _refuse(failures, noun)
    return folders


def check_available(registry: Registry, names: Iterable[str], noun: str) -> None:
    """Raise ModelsUnavailable that names every version of the models that have none available."""
    without = [name for name in names if not registry.available_versions(name)]
    failures = {
        ModelFailure(name, status.version, status.code): status.message
        for name in without
        for status in registry.statuses(name)
    }
    _refuse(failures, noun)


def _refuse(failures: Mapping[ModelFailure, str], noun: str) -> None:
    if failures:
        listed = ", ".join(_described(failure, message) for failure, message in failures.items())
        message = f"{len(failures)} {noun}(s) did not become available: {{{listed}, }}"
        raise ModelsUnavailable(message, list(failures))


def _described(failure: ModelFailure, message: str) -> str:
    version = "" if failure.version is None else f" version: {failure.version}"
    return f"{{name: {failure.model}{version}}} due to error: {failure.code.name}: {message}"
