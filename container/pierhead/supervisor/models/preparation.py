"""Makes all that a model's processes need: its artifact is found, its ports are taken, its files written.

It reads folders that may be slow and may be hostile, so it runs in a thread of its own, one for each load.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from pierhead.contract.artifact import Artifact, find_artifact
from pierhead.control import ServerAddress
from pierhead.errors import ArtifactError, Code, ServingError
from pierhead.settings import Settings
from pierhead.supervisor.memory_use import MemoryUse
from pierhead.supervisor.models.failures import explain_refusal, refuse_full_memory
from pierhead.supervisor.models.layout import Layout, name_default_model
from pierhead.supervisor.models.model import PreparedModel
from pierhead.supervisor.models.publication import Publication
from pierhead.supervisor.plan import Inputs
from pierhead.supervisor.ports import PortPool

__all__ = ["Preparer", "find_model_folder"]


def find_model_folder(url: str, root: Path) -> Path:
    """Return the folder that a load request names, links resolved.

    Raises ServingError: INVALID_ARGUMENT where it is not inside `root`, NOT_FOUND where it is not there.
    Source: SageMaker's platform contract, section 2.
    """
    try:
        models, folder = root.resolve(), Path(url).resolve()
        is_inside = Path(url).is_absolute() and folder != models and folder.is_relative_to(models)
        is_there = is_inside and folder.is_dir()
    except (OSError, ValueError, RuntimeError) as problem:
        raise ServingError(Code.INVALID_ARGUMENT, "url is not the path of a folder") from problem
    if not is_inside:
        raise ServingError(Code.INVALID_ARGUMENT, f"url must be the path of a folder inside {root}")
    if not is_there:
        raise ServingError(Code.NOT_FOUND, f"there is no folder at {url}")
    return folder


class Preparer:
    """Prepares models; may be used by several threads at a time."""

    def __init__(
        self,
        inputs: Inputs,
        publication: Publication,
        ports: PortPool,
        memory: Callable[[], MemoryUse | None],
    ) -> None:
        self._inputs = inputs
        self._publication = publication
        self._ports = ports
        self._memory = memory

    def prepare(self, number: int, name: str, url: str) -> PreparedModel:
        """Return what the processes of a model need; raise ServingError where it cannot be loaded."""
        settings = self._inputs.settings
        artifact = _find_artifact(find_model_folder(url, settings.models_dir), url, settings)
        refusal = refuse_full_memory(name, self._memory(), settings.memory_watermark_percent)
        if refusal is not None:
            raise refusal
        addresses = self._ports.take(settings.instance_count) if artifact.models else ()
        with contextlib.ExitStack() as undo:
            undo.callback(self.give_back, number, addresses)
            prepared = self._lay_out(number, name, artifact, addresses)
            undo.pop_all()
        return prepared

    def give_back(self, number: int, addresses: tuple[ServerAddress, ...]) -> None:
        """Remove the files of a model and let others have its ports."""
        self._publication.remove_folder(number)
        self._ports.give_back(addresses)

    def _lay_out(
        self, number: int, name: str, artifact: Artifact, addresses: tuple[ServerAddress, ...]
    ) -> PreparedModel:
        named = name_default_model(artifact, name, self._inputs.settings)
        try:
            folder = self._publication.make_folder(number)
            return Layout(self._inputs, name, folder, named, addresses).lay_out()
        except OSError as problem:
            raise explain_refusal(name, problem) from problem


def _find_artifact(folder: Path, url: str, settings: Settings) -> Artifact:
    try:
        return find_artifact(folder, settings.program)
    except ArtifactError as problem:
        reason = str(problem).partition("\nFound:")[0]
        raise ServingError(Code.NOT_FOUND, f"there is no model at {url}: {reason}") from problem
