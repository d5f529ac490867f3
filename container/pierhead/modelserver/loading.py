"""The first load: every configured model, before either port opens.

A model whose base path is missing or empty fails the start at once, where TensorFlow Serving would wait for
ever: in a container nothing will put it there.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from pierhead.errors import Code, ServingError
from pierhead.modelserver.model_config import ModelConfig
from pierhead.modelserver.registry import Registry, State, VersionStatus
from pierhead.modelserver.versions import aspired_versions
from pierhead.settings import available_cpus

__all__ = ["load_models"]


def load_models(registry: Registry, models: tuple[ModelConfig, ...]) -> None:
    """Load all versions that the models' policies ask for, the highest of each model first.

    Raises ServingError UNKNOWN naming every version of the models that have none available.
    """
    failures = [text for outcome in _load_side_by_side(registry, models) for text in outcome]
    if failures:
        listed = ", ".join(failures)
        message = f"{len(failures)} servable(s) did not become available: {{{listed}, }}"
        raise ServingError(Code.UNKNOWN, message)


def _load_side_by_side(registry: Registry, models: tuple[ModelConfig, ...]) -> list[list[str]]:
    if len(models) < 2:
        # A thread would have a malloc arena of its own: 5 MB that a forked server cannot share.
        return [_load_model(registry, model) for model in models]
    with ThreadPoolExecutor(min(len(models), 4 * available_cpus())) as threads:
        return list(threads.map(lambda model: _load_model(registry, model), models))


def _load_model(registry: Registry, model: ModelConfig) -> list[str]:
    """Return what to tell of a model without an available version; nothing of any other."""
    try:
        folders = aspired_versions(model.base_path, model.policy)
    except ServingError as problem:
        return [f"{{name: {model.name}}} due to error: {problem.code.name}: {problem.message}"]
    if not folders:
        problem_text = f"No versions of servable {model.name} found under base path {model.base_path}"
        return [f"{{name: {model.name}}} due to error: NOT_FOUND: {problem_text}"]
    statuses = [registry.load(model.name, version, folder) for version, folder in folders.items()]
    if any(status.state is State.AVAILABLE for status in statuses):
        return []
    return list(_described(model.name, statuses))


def _described(name: str, statuses: Iterable[VersionStatus]) -> Iterable[str]:
    for status in statuses:
        reason = f"{status.code.name}: {status.message}"
        yield f"{{name: {name} version: {status.version}}} due to error: {reason}"
