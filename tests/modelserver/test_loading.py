from __future__ import annotations

from pathlib import Path

import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.modelserver.loading import load_models
from pierhead.modelserver.model_config import ModelConfig
from pierhead.modelserver.registry import Registry, Retries
from pierhead.modelserver.version_policy import AllVersions


def make_model(root: Path, name: str, *versions: str) -> ModelConfig:
    for version in versions:
        (root / name / version).mkdir(parents=True)
    return ModelConfig(name, root / name, AllVersions())


def test_all_models_are_loaded_the_highest_version_first(tmp_path: Path) -> None:
    platform = FakePlatform()
    registry = Registry(platform, Retries())
    load_models(registry, (make_model(tmp_path, "a", "1", "2"), make_model(tmp_path, "b", "7")))

    assert [registry.find("a").version, registry.find("b").version] == [2, 7]
    assert platform.attempts.index(tmp_path / "a" / "2") < platform.attempts.index(tmp_path / "a" / "1")


def test_no_models_is_no_failure() -> None:
    load_models(Registry(FakePlatform(), Retries()), ())


@pytest.mark.parametrize(
    ("make_folder", "reason"),
    [
        (False, "NOT_FOUND: Could not find base path {base}"),
        (True, "NOT_FOUND: No versions of servable m found under base path {base}"),
    ],
)
def test_base_path_without_versions_fails_instead_of_waiting(
    tmp_path: Path, make_folder: bool, reason: str
) -> None:
    base = tmp_path / "m"
    if make_folder:
        base.mkdir()
    with pytest.raises(ServingError) as caught:
        load_models(Registry(FakePlatform(), Retries()), (ModelConfig("m", base),))

    assert caught.value.code is Code.UNKNOWN
    assert reason.format(base=base) in caught.value.message


def test_model_without_an_available_version_names_each_of_them(tmp_path: Path) -> None:
    model = make_model(tmp_path, "m", "1", "2")
    with pytest.raises(ServingError) as caught:
        load_models(Registry(FakePlatform(failures=9), Retries()), (model,))

    assert caught.value.message == (
        "2 servable(s) did not become available: "
        f"{{{{name: m version: 2}} due to error: NOT_FOUND: nothing at {tmp_path}/m/2, "
        f"{{name: m version: 1}} due to error: NOT_FOUND: nothing at {tmp_path}/m/1, }}"
    )
