from __future__ import annotations

from pathlib import Path

import pytest

from pierhead.errors import Code, ServingError
from pierhead.modelserver.model_config import ModelConfig, read_model_config
from pierhead.modelserver.version_policy import (
    AllVersions,
    LatestVersions,
    SpecificVersions,
    VersionPolicy,
)


def read(tmp_path: Path, text: str) -> tuple[ModelConfig, ...]:
    file = tmp_path / "models.config"
    file.write_text(text)
    return read_model_config(file)


def test_entries_with_commas_colons_and_either_quotes(tmp_path: Path) -> None:
    models = read(
        tmp_path,
        """
        model_config_list: {  # a comment
          config: { name: 'a', base_path: "/models/a", model_platform: 'tensorflow' },
          config {
            name: "b" base_path: "/models/b" model_type: TENSORFLOW version_labels { key: "x" value: 2 }
          }
        }
        """,
    )

    assert ("a", Path("/models/a")) == (models[0].name, models[0].base_path)
    assert models[1].labels == {"x": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", LatestVersions(1)),
        ("model_version_policy { latest { num_versions: 3 } }", LatestVersions(3)),
        ("model_version_policy { latest {} }", LatestVersions(1)),
        ("model_version_policy { all {} }", AllVersions()),
        ("model_version_policy { specific { versions: 42 versions: 43 } }", SpecificVersions((42, 43))),
    ],
)
def test_version_policy(tmp_path: Path, text: str, expected: VersionPolicy) -> None:
    entry = f"name: 'm' base_path: '/m' model_platform: 'tensorflow' {text}"
    (model,) = read(tmp_path, f"model_config_list {{ config {{ {entry} }} }}")

    assert expected == model.policy


@pytest.mark.parametrize("text", ["", "# only a comment", "model_config_list {}"])
def test_empty_config_has_no_models(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            ["name: 'm' base_path: '/a' model_platform: 'tensorflow'"] * 2,
            "Illegal to list model m multiple times in config list",
        ),
        (
            ["name: 'm' base_path: 'a' model_platform: 'tensorflow'"],
            "Expected model m to have an absolute path or URI; got base_path()=a",
        ),
        (
            ["name: 'm' base_path: '/a'"],
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform, model name is m",
        ),
        (
            ["name: 'm' base_path: '/a' model_platform: 'torch'"],
            "Model m requests unsupported platform torch",
        ),
        (
            ["name: 'm' base_path: '/a' model_platform: 'tensorflow' model_type: TENSORFLOW"],
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            "ModelServerConfig::model_platform, model name is m",
        ),
    ],
)
def test_rule_is_told_in_the_words_of_the_original(tmp_path: Path, entries: list[str], message: str) -> None:
    text = "".join(f"config {{ {entry} }}" for entry in entries)

    with pytest.raises(ServingError) as caught:
        read(tmp_path, f"model_config_list {{ {text} }}")

    assert (Code.INVALID_ARGUMENT, message) == (caught.value.code, caught.value.message)


@pytest.mark.parametrize("text", ["model_config_list {", "nonsense: 1"])
def test_text_that_does_not_parse_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ServingError, match=r"Invalid protobuf file: '.*models\.config'"):
        read(tmp_path, text)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="Invalid protobuf file"):
        read_model_config(tmp_path / "nothing")
