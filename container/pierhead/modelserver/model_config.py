"""The models to serve: from a ModelServerConfig text proto, or from two flags.

Rules and messages: TensorFlow Serving's contract, section 3.1.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
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

__all__ = [
    "ModelConfig",
    "check_base_path",
    "check_served_type",
    "models_of",
    "read_config_file",
    "read_model_config",
]

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
    return models_of(read_config_file(path))


def read_config_file(path: Path) -> Any:
    """Return the ModelServerConfig message of a file; raise ServingError INVALID_ARGUMENT without one."""
    config = import_serving_stubs().model_server_config.ModelServerConfig()
    try:
        text_format.Parse(path.read_text(), config)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{path}' ({problem})") from problem
    return config


def models_of(config: Any, *, served: Container[str] = ()) -> tuple[ModelConfig, ...]:
    """Return the models of a ModelServerConfig message; raise ServingError INVALID_ARGUMENT by the rules.

    `served` are the names that are served already: their platform may not change.
    """
    if config.WhichOneof("config") == "custom_model_config":
        raise ServingError(Code.INVALID_ARGUMENT, "custom_model_config is not supported")
    entries = config.model_config_list.config
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            message = f"Illegal to list model {name} multiple times in config list"
            raise ServingError(Code.INVALID_ARGUMENT, message)
    return tuple(_model_of(entry, is_served=entry.name in served) for entry in entries)


def check_served_type(config: Any) -> None:
    """Raise ServingError INVALID_ARGUMENT unless a ModelServerConfig message holds a list of models."""
    if config.WhichOneof("config") != "model_config_list":
        message = (
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )
        raise ServingError(Code.INVALID_ARGUMENT, message)


def check_base_path(name: str, base_path: str) -> Path:
    """Return an absolute base path; raise ServingError INVALID_ARGUMENT for any other."""
    if not base_path.startswith("/"):
        message = f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}"
        raise ServingError(Code.INVALID_ARGUMENT, message)
    return Path(base_path)


def _model_of(entry: Any, *, is_served: bool) -> ModelConfig:
    base_path = check_base_path(entry.name, entry.base_path)
    _check_platform(entry, is_served=is_served)
    labels = dict(entry.version_labels)
    return ModelConfig(entry.name, base_path, _policy_of(entry.model_version_policy), labels)


def _check_platform(entry: Any, *, is_served: bool) -> None:
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
    elif is_served and not entry.model_type and entry.model_platform != PLATFORM:
        problem = (
            f"Illegal to change a model's platform. For model {entry.name} platform was {PLATFORM} "
            f"and new platform requested is {entry.model_platform}"
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
