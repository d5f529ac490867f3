from __future__ import annotations

from pathlib import Path

import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.modelserver.registry import Registry, Retries, State, VersionStatus


def loaded(*versions: int) -> Registry:
    registry = Registry(FakePlatform(), Retries())
    for version in versions:
        registry.load("m", version, Path(f"/m/{version}"))
    return registry


def test_latest_is_the_highest_version() -> None:
    assert loaded(9, 10, 1).find("m").version == 10


def test_version_is_found_by_number() -> None:
    assert loaded(9, 10).find("m", 9).version == 9


@pytest.mark.parametrize(
    ("name", "version", "request_text"),
    [("n", None, "Latest(n)"), ("m", 7, "Specific(m, 7)"), ("n", 7, "Specific(n, 7)")],
)
def test_unknown_servable_is_not_found(name: str, version: int | None, request_text: str) -> None:
    with pytest.raises(ServingError) as caught:
        loaded(1).find(name, version)

    assert Code.NOT_FOUND is caught.value.code
    assert f"Servable not found for request: {request_text}" == caught.value.message


def test_statuses_are_listed_highest_first() -> None:
    assert [status.version for status in loaded(9, 10, 1).statuses("m")] == [10, 9, 1]


def test_unknown_statuses_are_not_found() -> None:
    with pytest.raises(ServingError, match="Could not find any versions of model n"):
        loaded(1).statuses("n")
    with pytest.raises(ServingError, match="Could not find version 7 of model m"):
        loaded(1).statuses("m", 7)


def test_failed_load_is_tried_again_after_a_pause() -> None:
    pauses: list[float] = []
    platform = FakePlatform(failures=2)
    registry = Registry(platform, Retries(2, 60.0), pauses.append)

    assert VersionStatus(1, State.AVAILABLE) == registry.load("m", 1, Path("/m/1"))
    assert (pauses, len(platform.attempts)) == ([60.0, 60.0], 3)


def test_load_that_fails_to_the_end_is_ended_with_its_reason() -> None:
    registry = Registry(FakePlatform(failures=9), Retries())
    registry.load("m", 1, Path("/m/1"))

    assert (VersionStatus(1, State.END, Code.NOT_FOUND, "nothing at /m/1"),) == registry.statuses("m")
    with pytest.raises(ServingError, match="Servable not found"):
        registry.find("m")


def test_unloaded_version_stays_in_the_statuses() -> None:
    platform = FakePlatform()
    registry = Registry(platform, Retries())
    registry.load("m", 1, Path("/m/1"))
    registry.unload_all()

    assert (VersionStatus(1, State.END),) == registry.statuses("m")
    assert platform.runtimes[0].is_unloaded
