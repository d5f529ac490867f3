"""What an unpacked artifact would be served as, found without starting anything.

The rules are the container's own: layout, default model, hooks, and `lib` before requirements.txt. All that
would keep it from starting is collected and told at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pierhead.contract.artifact import Artifact, Model, find_artifact
from pierhead.errors import ArtifactError
from pierhead_sagemaker.hook_script import HookScript, read_hook_script
from pierhead_sagemaker.sample_request import Sample, find_sample

__all__ = ["Inspection", "describe", "inspect_artifact", "version_text"]

DEFAULT_MODEL_VARIABLE = "SAGEMAKER_TFS_DEFAULT_MODEL_NAME"
PROGRAM_VARIABLE = "SAGEMAKER_PROGRAM"
DEFAULT_PROGRAM = "inference.py"


@dataclass(frozen=True)
class Inspection:
    """An artifact that can be served: its parts, the model for requests that name none, and remarks.

    There is no default where the artifact has no SavedModel and its hooks load a model by themselves.
    """

    artifact: Artifact
    default: Model | None
    hook_script: HookScript | None
    has_requirements: bool
    has_lib: bool
    sample: Sample | None
    notes: tuple[str, ...]


def inspect_artifact(root: Path, environ: Mapping[str, str]) -> Inspection:
    """Return what is below `root`, read as the container reads it under these variables.

    Raises ArtifactError with all that would keep it from being served.
    """
    artifact = find_artifact(root, _program(environ))
    problems: list[str] = []
    default, script = None, None
    try:
        default = _default_model(artifact, environ)
    except ArtifactError as error:
        problems.append(str(error))
    try:
        script = _hook_script(artifact, environ)
    except ArtifactError as error:
        problems.append(str(error))
    if problems:
        raise ArtifactError("\n".join(problems))
    code = artifact.code
    return Inspection(
        artifact=artifact,
        default=default,
        hook_script=script,
        has_requirements=code is not None and (code / "requirements.txt").is_file(),
        has_lib=code is not None and (code / "lib").is_dir(),
        sample=find_sample(root),
        notes=tuple(_notes(artifact, environ)),
    )


def describe(inspection: Inspection) -> str:
    """Return the findings as text, in aligned columns, without a newline at the end."""
    rows = [("models", line) for line in _model_lines(inspection)]
    rows += [("hooks", _hooks_line(inspection)), ("packages", _packages_line(inspection))]
    rows.append(("sample", _sample_line(inspection.sample)))
    labels = [
        label if index == 0 or label != rows[index - 1][0] else "" for index, (label, _) in enumerate(rows)
    ]
    lines = [f"  {label:<10}{text}" for label, (_, text) in zip(labels, rows, strict=True)]
    return "\n".join([*lines, *(f"  note: {note}" for note in inspection.notes)])


def version_text(model: Model) -> str:
    """Return a model's versions in words."""
    numbers = ", ".join(str(version) for version in model.versions)
    return f"version{'s' if len(model.versions) > 1 else ''} {numbers}"


def _default_model(artifact: Artifact, environ: Mapping[str, str]) -> Model | None:
    name = environ.get(DEFAULT_MODEL_VARIABLE)
    if not artifact.models:
        return None
    if not name:
        return artifact.models[0]
    for model in artifact.models:
        if model.name == name:
            return model
    there = ", ".join(model.name for model in artifact.models)
    raise ArtifactError(
        f"{DEFAULT_MODEL_VARIABLE}={name!r} is no model of the artifact, which holds: {there}"
    )


def _program(environ: Mapping[str, str]) -> str:
    return environ.get(PROGRAM_VARIABLE) or DEFAULT_PROGRAM


def _hook_script(artifact: Artifact, environ: Mapping[str, str]) -> HookScript | None:
    if artifact.code is None or not (artifact.code / _program(environ)).is_file():
        return None
    return read_hook_script(artifact.code / _program(environ))


def _notes(artifact: Artifact, environ: Mapping[str, str]) -> Iterator[str]:
    program = _program(environ)
    if artifact.code is None and (artifact.root / program).is_file():
        yield f"{program} is not used where it is: hooks are read from code/{program}"
    if artifact.code is not None and not (artifact.code / program).is_file():
        yield f"code/ holds no {program}, so there are no hooks"
    if artifact.code is not None and (artifact.code / "lib" / "requirements.txt").is_file():
        yield "code/lib/requirements.txt is not installed; only code/requirements.txt is"


def _model_lines(inspection: Inspection) -> Iterator[str]:
    models = inspection.artifact.models
    if not models:
        yield "no SavedModel: the hooks load a model by themselves"
    width = max((len(model.name) for model in models), default=0)
    for model in models:
        mark = ", the default" if model is inspection.default and len(models) > 1 else ""
        yield f"{model.name:<{width}}  {version_text(model)}{mark}"


def _hooks_line(inspection: Inspection) -> str:
    script = inspection.hook_script
    if script is None:
        return "none: requests go to the model as they are"
    names = ", ".join(script.hooks) or "not known before it runs"
    return f"{script.path.relative_to(inspection.artifact.root)}: {names}"


def _packages_line(inspection: Inspection) -> str:
    if inspection.has_lib and inspection.has_requirements:
        return "code/lib; code/requirements.txt is ignored because of it"
    if inspection.has_lib:
        return "code/lib"
    return "code/requirements.txt, installed at the start" if inspection.has_requirements else "none"


def _sample_line(sample: Sample | None) -> str:
    return "none" if sample is None else f"{sample.path.name} ({sample.media_type})"
