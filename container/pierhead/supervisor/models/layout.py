"""The processes of one loaded model and the files that they read.

Model servers without hooks take invocations by themselves, from `0.sock`, `1.sock` … in the model's folder.
An artifact with hooks has handler workers of its own, with their own interpreter and packages, and then these
names lead to theirs: models never share an import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pierhead.contract.artifact import Artifact
from pierhead.control import ModelPlan, ServerAddress, ServicePlan, write_plan
from pierhead.settings import Settings
from pierhead.supervisor.models.model import PreparedModel
from pierhead.supervisor.plan import (
    REQUIREMENTS,
    WORKERS,
    Inputs,
    ServerFiles,
    find_hooks,
    has_universal_hooks,
    model_config_text,
    model_server_spec,
    requirements_spec,
    server_name,
    server_probes,
    workers_spec,
)
from pierhead.supervisor.probes import Probe
from pierhead.supervisor.process import ProcessSpec
from pierhead.supervisor.requirements import find_requirements, make_environment

__all__ = ["Layout", "name_default_model"]


@dataclass(frozen=True)
class Layout:
    """A model `name`, in whose `folder` all is laid out that its processes read."""

    inputs: Inputs
    name: str
    folder: Path
    artifact: Artifact
    addresses: tuple[ServerAddress, ...]

    def lay_out(self) -> PreparedModel:
        """Write the files and return the processes; raise OSError where there is no room."""
        self._config.write_text(model_config_text(self.artifact, self._labels()))
        write_plan(self._service_plan(), self._plan)
        if self._hooks is not None:
            for number in range(1, self.inputs.settings.instance_count):
                self._socket(number).symlink_to(self._socket(0).name)
        return PreparedModel(
            folder=self.folder,
            addresses=self.addresses,
            specs=tuple(self._specs()),
            probes=self._probes(),
            workers=self._process(WORKERS),
            at_sockets=self._at_sockets(),
        )

    @property
    def _hooks(self) -> Path | None:
        return find_hooks(self.inputs.settings, self.artifact)

    @property
    def _servers_take_invocations(self) -> bool:
        is_embedded = self.inputs.model_server is None
        return is_embedded and self._hooks is None and not has_universal_hooks(self.inputs)

    @property
    def _config(self) -> Path:
        return self.folder / "models.config"

    @property
    def _plan(self) -> Path:
        return self.folder / "plan.json"

    def _socket(self, number: int) -> Path:
        return self.folder / f"{number}.sock"

    def _process(self, role: str) -> str:
        return f"{self.name}/{role}"

    def _labels(self) -> dict[str, dict[str, int]]:
        """Return the labels of each model; one for a version that is not there is another model's."""
        labels = self.inputs.settings.version_labels
        return {
            model.name: {
                label: version
                for label, version in labels.of_model(model.name, self.name).items()
                if version in model.versions
            }
            for model in self.artifact.models
        }

    def _at_sockets(self) -> tuple[str, ...]:
        if self._hooks is not None:
            return (self._process(WORKERS),)
        return tuple(self._probes()) if self._servers_take_invocations else ()

    def _probes(self) -> dict[str, Probe]:
        return server_probes(self.artifact, self.addresses, self._process(""))

    def _service_plan(self) -> ServicePlan:
        """Return what handler workers are told: the model's own, or the shared ones."""
        hooks, run = self._hooks, self.inputs.run
        models = tuple(ModelPlan(model.name, model.versions) for model in self.artifact.models)
        return ServicePlan(
            settings=self.inputs.settings.to_env(),
            socket=str(self._socket(0)),
            control_socket=str(run.control_socket),
            servers=self.addresses,
            models=models or (ModelPlan(self.name, ()),),
            default_model=self.name,
            code=str(self.artifact.code) if hooks is not None else None,
            hooks=str(hooks) if hooks is not None else None,
            process=self._process(WORKERS),
        )

    def _specs(self) -> Iterator[ProcessSpec]:
        for number, address in enumerate(self.addresses):
            socket = self._socket(number) if self._servers_take_invocations else None
            files = ServerFiles(self._config, self.name, socket)
            yield model_server_spec(self.inputs, self._process(server_name(number)), address, files)
        if self._hooks is None:
            return
        requirements, python = find_requirements(self.artifact.code), sys.executable
        if requirements.file is not None:
            python = str(make_environment(self.folder / "environment"))
            yield requirements_spec(self._process(REQUIREMENTS), python, requirements.file)
        yield workers_spec(self.inputs, self._process(WORKERS), python, self._plan)


def name_default_model(artifact: Artifact, name: str, settings: Settings) -> Artifact:
    """Return the artifact with the model that serves requests which name none under the endpoint's name.

    That is the one which has this name already, else the setting's, else the first by name.
    """
    names = [model.name for model in artifact.models]
    wanted = (each for each in (name, settings.default_model_name, *names) if each in names)
    default = next(wanted, None)
    models = (replace(model, name=name) if model.name == default else model for model in artifact.models)
    return replace(artifact, models=tuple(models))
