"""The models to serve: from a ModelServerConfig text proto, or from two flags.

Rules and messages: TensorFlow Serving's contract, section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from pierhead.errors import Code, ServingError
from pierhead.modelserver.version_policy import (
    AllVersions,
    LatestVersions,
    SpecificVersions,
    VersionPolicy,
)
from pierhead.serving_stubs import import_serving_stubs

__all__ = ["ModelConfig", "models_of", "read_model_config"]

PLATFORM = "tensorflow"


@dataclass(frozen=True)
class ModelConfig:
    """One model: its name, the folder that holds its versions, and which of them to serve."""

    name: str
    base_path: Path
    policy: VersionPolicy = field(default_factory=LatestVersions)
    labels: Mapping[str, int] = field(default_factory=dict)


def read_model_config(path: Path) -> tuple[ModelConfig, ...]:
    """Return the models of a config file; raise ServingError where it cannot be used."""
    config = import_serving_stubs().model_server_config.ModelServerConfig()
    try:
        text_format.Parse(path.read_text(), config)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{path}' ({problem})") from problem
    return models_of(config)


def models_of(config: Any) -> tuple[ModelConfig, ...]:
    """Return the models of a ModelServerConfig message; raise ServingError INVALID_ARGUMENT by the rules."""
    if config.WhichOneof("config") == "custom_model_config":
        raise ServingError(Code.INVALID_ARGUMENT, "custom_model_config is not supported")
    models = tuple(_model_of(entry) for entry in config.model_config_list.config)
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            message = f"Illegal to list model {name} multiple times in config list"
            raise ServingError(Code.INVALID_ARGUMENT, message)
    return models


def check_base_path(name: str, base_path: str) -> Path:
    """Return an absolute base path; raise ServingError INVALID_ARGUMENT for any other."""
    if not base_path.startswith("/"):
        message = f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}"
        raise ServingError(Code.INVALID_ARGUMENT, message)
    return Path(base_path)


def _model_of(entry: Any) -> ModelConfig:
    _check_platform(entry)
    base_path = check_base_path(entry.name, entry.base_path)
    labels = dict(entry.version_labels)
    return ModelConfig(entry.name, base_path, _policy_of(entry.model_version_policy), labels)


def _check_platform(entry: Any) -> None:
    if entry.model_type and entry.model_platform:
        problem = (
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            f"ModelServerConfig::model_platform, model name is {entry.name}"
        )
    elif not entry.model_type and not entry.model_platform:
        problem = (
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            f"ModelServerConfig::model_platform, model name is {entry.name}"
        )
    elif not entry.model_type and entry.model_platform != PLATFORM:
        problem = f"Model {entry.name} requests unsupported platform {entry.model_platform}"
    else:
        return
    raise ServingError(Code.INVALID_ARGUMENT, problem)


def _policy_of(policy: Any) -> VersionPolicy:
    match policy.WhichOneof("policy_choice"):
        case "all":
            return AllVersions()
        case "specific":
            return SpecificVersions(tuple(policy.specific.versions))
        case _:
            return LatestVersions(policy.latest.num_versions or 1)
