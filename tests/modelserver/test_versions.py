from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pierhead.errors import Code, ServingError
from pierhead.modelserver.version_policy import (
    AllVersions,
    LatestVersions,
    SpecificVersions,
    VersionPolicy,
)
from pierhead.modelserver.versions import aspired_versions, find_versions, warn_of_versions


def make_versions(base_path: Path, *names: str) -> Path:
    for name in names:
        (base_path / name).mkdir(parents=True)
    return base_path


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (LatestVersions(), [10]),
        (LatestVersions(2), [10, 9]),
        (LatestVersions(7), [10, 9, 1]),
        (AllVersions(), [10, 9, 1]),
        (SpecificVersions((1, 9)), [9, 1]),
        (SpecificVersions((1, 5)), [1]),
        (SpecificVersions(()), []),
    ],
)
def test_policy_chooses_the_highest_first(tmp_path: Path, policy: VersionPolicy, expected: list[int]) -> None:
    make_versions(tmp_path, "1", "9", "10")

    assert expected == list(aspired_versions(tmp_path, policy))


def test_zero_padded_name_is_its_number(tmp_path: Path) -> None:
    make_versions(tmp_path, "00000123")

    assert {123: tmp_path / "00000123"} == find_versions(tmp_path)


@pytest.mark.parametrize("name", ["one", "-1", "1.5", "1a", ".1", "9223372036854775808", "٣"])
def test_other_names_are_ignored(tmp_path: Path, name: str) -> None:
    make_versions(tmp_path, name)

    assert find_versions(tmp_path) == {}


def test_two_spellings_of_one_number_are_one_version(tmp_path: Path) -> None:
    make_versions(tmp_path, "1", "01")

    assert list(find_versions(tmp_path)) == [1]


def test_file_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("")

    assert find_versions(tmp_path) == {}


def test_missing_base_path_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="Could not find base path") as caught:
        find_versions(tmp_path / "nothing")

    assert Code.NOT_FOUND is caught.value.code


def test_doubtful_versions_are_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_versions(tmp_path, "1", "01", "2")
    with caplog.at_level(logging.WARNING):
        warn_of_versions(tmp_path, SpecificVersions((1, 5)))

    assert caplog.messages == [
        f"version 1 is there twice: {tmp_path}/01 is used, not {tmp_path}/1",
        f"version 5 was asked for and is not at {tmp_path}",
    ]
