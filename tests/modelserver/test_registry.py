from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.modelserver.fake_runtime import FakePlatform, FakeRuntime
from tests.modelserver.running_server import wait_until

from pierhead.errors import Code, ServingError
from pierhead.modelserver.registry import Registry, Retries, State, VersionStatus
from pierhead.modelserver.runtimes.base import Runtime


def loaded(*versions: int) -> Registry:
    registry = Registry(FakePlatform(), Retries())
    for version in versions:
        registry.load("m", version, Path(f"/m/{version}"))
    return registry


def is_unloaded(runtime: Runtime) -> bool:
    assert isinstance(runtime, FakeRuntime)
    return runtime.is_unloaded


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
    registry = Registry(platform, Retries(2, 60.0), lambda _, seconds: pauses.append(seconds))

    assert VersionStatus(1, State.AVAILABLE) == registry.load("m", 1, Path("/m/1"))
    assert (pauses, len(platform.attempts)) == ([60.0, 60.0], 3)


def test_version_shows_as_loading_between_attempts() -> None:
    seen: list[VersionStatus] = []
    registry = Registry(FakePlatform(failures=1), Retries(1), lambda *_: seen.extend(registry.statuses("m")))
    registry.load("m", 1, Path("/m/1"))

    assert [VersionStatus(1, State.LOADING)] == seen


def test_load_that_nobody_wants_any_more_is_not_tried_again() -> None:
    unwanted = threading.Event()
    platform = FakePlatform(failures=9)
    registry = Registry(platform, Retries(5, 60.0), lambda *_: unwanted.set())
    status = registry.load("m", 1, Path("/m/1"), unwanted=unwanted)

    assert (State.END, Code.CANCELLED) == (status.state, status.code)
    assert len(platform.attempts) == 1


def test_pause_ends_as_soon_as_a_load_is_unwanted() -> None:
    unwanted = threading.Event()
    registry = Registry(FakePlatform(failures=9), Retries(5, 3600.0))
    thread = threading.Thread(
        target=registry.load, args=("m", 1, Path("/m/1")), kwargs={"unwanted": unwanted}
    )
    thread.start()
    unwanted.set()
    thread.join(30)

    assert not thread.is_alive()


def test_unforeseen_failure_of_a_platform_ends_the_version_only() -> None:
    class BrokenPlatform:
        def load(self, folder: Path) -> FakeRuntime:
            raise ZeroDivisionError(str(folder))

    status = Registry(BrokenPlatform(), Retries()).load("m", 1, Path("/m/1"))

    assert VersionStatus(1, State.END, Code.INTERNAL, "ZeroDivisionError: /m/1") == status


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


def test_version_is_closed_when_the_last_holder_lets_go() -> None:
    registry = loaded(1)
    held = registry.find("m")
    runtime = held.runtime
    thread = threading.Thread(target=registry.unload, args=("m", 1))
    thread.start()
    wait_until(lambda: registry.statuses("m")[0].state is State.UNLOADING)

    with pytest.raises(ServingError, match="Servable not found"):
        registry.find("m")
    assert not is_unloaded(runtime)
    del held
    thread.join(30)
    assert is_unloaded(runtime)
    assert (VersionStatus(1, State.END),) == registry.statuses("m")


def test_version_that_somebody_holds_for_ever_is_closed_in_the_end() -> None:
    registry = loaded(1)
    held = registry.find("m")
    registry.unload("m", 1, 0.01)

    assert is_unloaded(held.runtime)


def test_version_that_is_loaded_anew_while_the_old_one_closes_stays_available() -> None:
    registry = loaded(1)
    withdrawn = registry.withdraw("m", 1)
    registry.load("m", 1, Path("/m/1"))
    assert withdrawn is not None
    withdrawn.close()

    assert (VersionStatus(1, State.AVAILABLE),) == registry.statuses("m")


def test_version_in_a_cycle_is_closed_all_the_same() -> None:
    registry = loaded(1)
    cycle: list[object] = [registry.find("m")]
    cycle.append(cycle)
    del cycle
    registry.unload("m", 1, 30.0)

    assert (VersionStatus(1, State.END),) == registry.statuses("m")


def test_label_finds_its_version() -> None:
    registry = loaded(1, 2)
    registry.replace_labels({"m": {"stable": 1, "old": 1}})

    assert (1, 1) == (registry.find("m", label="stable").version, registry.find("m", label="old").version)


@pytest.mark.parametrize(("name", "label"), [("m", "canary"), ("n", "stable")])
def test_unknown_label_is_refused(name: str, label: str) -> None:
    registry = loaded(1)
    registry.replace_labels({"m": {"stable": 1}})
    with pytest.raises(ServingError) as caught:
        registry.find(name, label=label)

    expected = Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}"
    assert expected == (caught.value.code, caught.value.message)


def test_label_of_a_version_that_went_finds_nothing() -> None:
    registry = loaded(1, 2)
    registry.replace_labels({"m": {"stable": 1}})
    registry.unload("m", 1)

    with pytest.raises(ServingError, match=r"Specific\(m, 1\)"):
        registry.find("m", label="stable")


def test_all_labels_are_replaced_together() -> None:
    registry = loaded(1)
    registry.replace_labels({"m": {"stable": 1}})
    registry.replace_labels({"m": {"canary": 1}})

    assert {"m": {"canary": 1}} == registry.labels()
