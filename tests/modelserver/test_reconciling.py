from __future__ import annotations

from pathlib import Path

import pytest
from tests.modelserver.fake_disk import DiskPlatform, Gate, put_version, states
from tests.modelserver.running_server import wait_until

from pierhead.modelserver.reconciling import Load, Reconciler, Step, Unload, next_step
from pierhead.modelserver.registry import Registry, Retries, State

SECONDS = 30.0


@pytest.mark.parametrize(
    ("aspired", "tried", "available", "expected"),
    [
        ([1, 3, 2], [], [], Load(3)),
        ([1, 3, 2], [3], [3], Load(2)),
        ([2], [], [1], Load(2)),
        ([2], [2], [1, 2], Unload(1)),
        ([2], [2], [1], None),
        ([3, 2], [2], [1, 2], Unload(1)),
        ([3, 2], [2, 3], [2, 3], None),
        ([], [], [1, 2], Unload(2)),
        ([1], [], [1], None),
        ([], [], [], None),
    ],
)
def test_old_version_goes_only_where_one_is_left_serving(
    aspired: list[int], tried: list[int], available: list[int], expected: Step | None
) -> None:
    assert expected == next_step(aspired, tried, available)


class Site:
    """One model `m` on disk, and what serves it."""

    def __init__(self, root: Path, retries: Retries | None = None) -> None:
        self.root = root
        self.platform = DiskPlatform()
        self.registry = Registry(self.platform, retries or Retries())
        self.reconciler = Reconciler(self.registry)

    def start(self, *versions: int) -> None:
        self.reconciler.start({"m": {each: put_version(self.root, each) for each in versions}})

    def aspire(self, *versions: int, whole: bool = True) -> None:
        folders = {each: put_version(self.root, each, whole=whole) for each in versions}
        self.reconciler.aspire("m", folders)

    def settle(self) -> None:
        assert self.reconciler.wait_until_settled(SECONDS)

    def states(self) -> dict[int, State]:
        return states(self.registry, "m")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_highest_version_is_loaded_first(site: Site) -> None:
    site.start(1, 10, 9)

    assert ["10", "9", "1"] == [folder.name for folder in site.platform.attempts]


def test_several_models_are_loaded_side_by_side(site: Site, tmp_path: Path) -> None:
    gates = {name: Gate() for name in "ab"}
    site.platform.at_load = lambda folder: gates[folder.parent.name].reached.set()
    site.reconciler.start({name: {1: put_version(tmp_path / name, 1)} for name in "ab"})

    assert [1, 1] == [site.registry.find(name).version for name in "ab"]


def test_new_version_is_available_before_the_old_one_goes(site: Site) -> None:
    site.start(1)
    gate = Gate()
    site.platform.at_load = gate.pass_through
    site.aspire(2)
    assert gate.reached.wait(SECONDS)

    assert {1: State.AVAILABLE, 2: State.LOADING} == site.states()
    assert site.registry.find("m").version == 1
    gate.opened.set()
    site.settle()
    assert {1: State.END, 2: State.AVAILABLE} == site.states()


def test_version_that_fails_leaves_the_old_one_serving(site: Site) -> None:
    site.start(1)
    site.aspire(2, whole=False)
    site.settle()

    assert {1: State.AVAILABLE, 2: State.END} == site.states()
    assert site.registry.find("m").version == 1


def test_failed_version_is_tried_anew_only_after_it_was_given_up(site: Site) -> None:
    site.start(1)
    site.aspire(2, whole=False)
    site.settle()
    site.aspire(2)
    site.settle()
    assert site.registry.find("m").version == 1

    site.aspire(1)
    site.aspire(2)
    site.settle()
    assert site.registry.find("m").version == 2


def test_model_that_aspires_to_nothing_is_unloaded(site: Site) -> None:
    site.start(1, 2)
    site.aspire()
    site.settle()

    assert {1: State.END, 2: State.END} == site.states()
    assert all(runtime.is_unloaded for runtime in site.platform.runtimes)


def test_newer_version_ends_the_attempts_to_load_an_older_one(tmp_path: Path) -> None:
    site = Site(tmp_path, Retries(5, 3600.0))
    site.start(1)
    site.aspire(2, whole=False)
    wait_until(lambda: site.platform.attempts.count(tmp_path / "2") == 1)
    site.aspire(3)
    site.settle()

    assert {1: State.END, 2: State.END, 3: State.AVAILABLE} == site.states()


def test_version_waits_as_start_behind_another_one(site: Site) -> None:
    site.start(1)
    gate = Gate()
    site.platform.at_load = gate.pass_through
    site.aspire(3, 2)
    assert gate.reached.wait(SECONDS)

    assert {1: State.AVAILABLE, 2: State.START, 3: State.LOADING} == site.states()
    gate.opened.set()
    site.settle()


def test_one_load_at_a_time_unless_flags_say_more(site: Site, tmp_path: Path) -> None:
    gate = Gate()
    site.platform.at_load = gate.pass_through
    for name in "ab":
        site.reconciler.aspire(name, {1: put_version(tmp_path / name, 1)})
    assert gate.reached.wait(SECONDS)
    wait_until(lambda: [State.LOADING] * 2 == [states(site.registry, name)[1] for name in "ab"])

    assert not site.platform.attempts
    gate.opened.set()
    site.settle()
    assert len(site.platform.attempts) == 2


def test_long_run_on_an_old_version_holds_up_no_newer_one(site: Site) -> None:
    site.start(1)
    held = site.registry.find("m")
    site.aspire(2)
    wait_until(lambda: site.states() == {1: State.UNLOADING, 2: State.AVAILABLE})
    site.aspire(3)
    wait_until(lambda: site.states() == {1: State.UNLOADING, 2: State.END, 3: State.AVAILABLE})

    assert held.version == 1
    del held
    site.settle()
    assert site.states()[1] is State.END


def test_stop_gives_up_loads_and_takes_all_out_of_service(tmp_path: Path) -> None:
    site = Site(tmp_path, Retries(5, 3600.0))
    site.start(1)
    site.aspire(2, whole=False)
    wait_until(lambda: site.platform.attempts.count(tmp_path / "2") == 1)
    site.reconciler.stop(SECONDS)

    assert {1: State.END, 2: State.END} == site.states()
