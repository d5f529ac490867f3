from __future__ import annotations

from pathlib import Path

import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.modelserver.loading import check_available, first_folders
from pierhead.modelserver.model_config import ModelConfig
from pierhead.modelserver.registry import Registry, Retries
from pierhead.modelserver.version_policy import AllVersions


def test_folders_are_listed_the_highest_version_first(tmp_path: Path) -> None:
    for version in ("1", "10", "9"):
        (tmp_path / version).mkdir()
    folders = first_folders([ModelConfig("m", tmp_path, AllVersions())], "servable")

    assert [10, 9, 1] == list(folders["m"])


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
        first_folders([ModelConfig("m", base)], "servable")

    expected = (
        f"1 servable(s) did not become available: {{{{name: m}} due to error: {reason.format(base=base)}, }}"
    )
    assert (Code.UNKNOWN, expected) == (caught.value.code, caught.value.message)


def test_model_without_an_available_version_names_each_of_them() -> None:
    registry = Registry(FakePlatform(failures=9), Retries())
    for version in (2, 1):
        registry.load("m", version, Path(f"/m/{version}"))
    with pytest.raises(ServingError) as caught:
        check_available(registry, ["m"], "model")

    assert caught.value.message == (
        "2 model(s) did not become available: "
        "{{name: m version: 2} due to error: NOT_FOUND: nothing at /m/2, "
        "{name: m version: 1} due to error: NOT_FOUND: nothing at /m/1, }"
    )
