from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from tests.modelserver.fake_disk import DiskPlatform, Gate, put_version, states

from pierhead.errors import Code, ServingError
from pierhead.modelserver.lifecycle import Lifecycle
from pierhead.modelserver.model_config import ModelConfig
from pierhead.modelserver.reconciling import Reconciler
from pierhead.modelserver.registry import Registry, Retries, State
from pierhead.modelserver.version_policy import AllVersions, LatestVersions, VersionPolicy
from pierhead.serving_stubs import ServingStubs

SECONDS = 30.0


class Site:
    """Models below one folder, and the whole life of them."""

    def __init__(self, root: Path, *, any_labels: bool = False) -> None:
        self.root = root
        self.platform = DiskPlatform()
        self.registry = Registry(self.platform, Retries())
        self.reconciler = Reconciler(self.registry)
        self.lifecycle = Lifecycle(self.registry, self.reconciler, any_labels=any_labels)

    def model(
        self, name: str, *versions: int, policy: VersionPolicy | None = None, **labels: int
    ) -> ModelConfig:
        for version in versions:
            put_version(self.root / name, version)
        return ModelConfig(name, self.root / name, policy or LatestVersions(), labels)

    def poll(self) -> None:
        self.lifecycle.poll()
        assert self.reconciler.wait_until_settled(SECONDS)

    def states(self, name: str) -> dict[int, State]:
        return states(self.registry, name)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def refusal(site: Site, *models: ModelConfig) -> tuple[Code, str]:
    with pytest.raises(ServingError) as caught:
        site.lifecycle.reload(models)
    return caught.value.code, caught.value.message


# Polling.


def test_new_version_on_disk_replaces_the_old_one(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1),))
    put_version(site.root / "m", 2)
    site.poll()

    assert {1: State.END, 2: State.AVAILABLE} == site.states("m")


def test_version_removed_from_disk_is_unloaded(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1, 2, policy=AllVersions()),))
    shutil.rmtree(site.root / "m" / "2")
    site.poll()

    assert {1: State.AVAILABLE, 2: State.END} == site.states("m")


def test_rollback_loads_the_older_version_before_the_newer_goes(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1, 2),))
    shutil.rmtree(site.root / "m" / "2")
    site.poll()

    assert site.registry.find("m").version == 1


def test_base_path_without_versions_unloads_the_model(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1),))
    shutil.rmtree(site.root / "m" / "1")
    site.poll()

    assert {1: State.END} == site.states("m")


def test_missing_base_path_skips_the_look_for_all_models(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.lifecycle.start((site.model("a", 1), site.model("b", 1)))
    put_version(site.root / "a", 2)
    shutil.rmtree(site.root / "b")
    with caplog.at_level(logging.ERROR):
        site.poll()
        site.poll()

    assert ({1: State.AVAILABLE}, {1: State.AVAILABLE}) == (site.states("a"), site.states("b"))
    assert 1 == sum("Could not find base path" in line for line in caplog.messages)


def test_half_written_version_fails_and_the_old_one_stays(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1),))
    put_version(site.root / "m", 2, whole=False)
    site.poll()

    assert {1: State.AVAILABLE, 2: State.END} == site.states("m")


# Starting.


def test_start_without_models_is_no_failure(site: Site) -> None:
    site.lifecycle.start(())
    site.poll()


def test_start_fails_at_once_without_versions(site: Site) -> None:
    with pytest.raises(ServingError, match=r"1 servable\(s\) did not become available"):
        site.lifecycle.start((site.model("m"),))


def test_start_fails_when_no_version_of_a_model_loads(site: Site) -> None:
    put_version(site.root / "b", 7, whole=False)
    with pytest.raises(ServingError) as caught:
        site.lifecycle.start((site.model("a", 1), site.model("b")))

    assert "1 servable(s) did not become available: {{name: b version: 7} due" in caught.value.message


# Reloading.


def test_reload_replaces_the_list_and_waits_for_new_models(site: Site) -> None:
    site.lifecycle.start((site.model("a", 1),))
    site.lifecycle.reload((site.model("b", 7),))

    assert site.registry.find("b").version == 7
    assert site.reconciler.wait_until_settled(SECONDS)
    assert {1: State.END} == site.states("a")


def test_reload_changes_a_policy_without_waiting(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1, 2),))
    gate = Gate()
    site.platform.at_load = gate.pass_through
    site.lifecycle.reload((site.model("m", policy=AllVersions()),))

    assert gate.reached.wait(SECONDS)
    gate.opened.set()
    assert site.reconciler.wait_until_settled(SECONDS)
    assert {1: State.AVAILABLE, 2: State.AVAILABLE} == site.states("m")


def test_reload_to_a_new_model_that_does_not_load_tells_why(site: Site) -> None:
    site.lifecycle.start((site.model("a", 1),))
    put_version(site.root / "b", 7, whole=False)
    code, message = refusal(site, site.model("a"), site.model("b"))

    assert code is Code.UNKNOWN
    assert message.startswith("1 model(s) did not become available: {{name: b version: 7} due to error:")
    assert site.registry.find("a").version == 1


def test_reload_to_a_new_model_without_versions_changes_nothing(site: Site) -> None:
    site.lifecycle.start((site.model("a", 1),))
    _, message = refusal(site, site.model("b"))

    assert "{name: b} due to error: NOT_FOUND: Could not find base path" in message
    site.poll()
    assert {1: State.AVAILABLE} == site.states("a")


def test_reload_loads_new_models_even_while_an_old_base_path_is_missing(site: Site) -> None:
    site.lifecycle.start((site.model("a", 1),))
    shutil.rmtree(site.root / "a")
    site.lifecycle.reload((ModelConfig("a", site.root / "a"), site.model("b", 7)))

    assert (1, 7) == (site.registry.find("a").version, site.registry.find("b").version)


# Labels.

EARLY = "Request to assign label to version {} of model m, which is not currently available for inference"


def test_labels_of_the_first_list_come_too_early(site: Site) -> None:
    with pytest.raises(ServingError, match=EARLY.format(1)) as caught:
        site.lifecycle.start((site.model("m", 1, stable=1),))

    assert caught.value.code is Code.FAILED_PRECONDITION


def test_labels_of_the_first_list_may_be_allowed(tmp_path: Path) -> None:
    site = Site(tmp_path, any_labels=True)
    site.lifecycle.start((site.model("m", 1, stable=1, canary=5),))

    assert site.registry.find("m", label="stable").version == 1
    with pytest.raises(ServingError, match=r"Specific\(m, 5\)"):
        site.registry.find("m", label="canary")


def test_reload_replaces_all_labels(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1, 2, policy=AllVersions()),))
    site.lifecycle.reload((site.model("m", policy=AllVersions(), stable=1, canary=2),))
    site.lifecycle.reload((site.model("m", policy=AllVersions(), stable=2),))

    assert {"m": {"stable": 2}} == site.registry.labels()


def test_label_of_an_unavailable_version_leaves_all_labels_as_they_were(site: Site) -> None:
    site.lifecycle.start((site.model("m", 1),))
    site.lifecycle.reload((site.model("m", stable=1),))

    assert (Code.FAILED_PRECONDITION, EARLY.format(5)) == refusal(site, site.model("m", stable=1, next=5))
    assert {"m": {"stable": 1}} == site.registry.labels()


def test_label_in_use_moves_only_to_an_available_version_even_if_new_ones_may_be_early(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, any_labels=True)
    site.lifecycle.start((site.model("m", 1, stable=1),))

    assert (Code.FAILED_PRECONDITION, EARLY.format(5)) == refusal(site, site.model("m", stable=5))


# Messages and files.


def entry(site: Site, name: str, platform: str = "tensorflow", **labels: int) -> str:
    written = "".join(f"version_labels {{ key: '{key}' value: {value} }}" for key, value in labels.items())
    fields = f"name: '{name}' base_path: '{site.root / name}' model_platform: '{platform}' {written}"
    return f"model_config_list {{ config {{ {fields} }} }}"


def test_message_without_a_list_is_refused(site: Site, stubs: ServingStubs) -> None:
    with pytest.raises(ServingError, match="Only ModelConfigList is currently supported"):
        site.lifecycle.reload_message(stubs.model_server_config.ModelServerConfig())


def test_platform_of_a_served_model_cannot_change(site: Site, stubs: ServingStubs) -> None:
    site.lifecycle.start((site.model("m", 1),))
    config = stubs.model_server_config.ModelServerConfig()
    config.model_config_list.config.add(name="m", base_path="/m", model_platform="torch")
    with pytest.raises(ServingError) as caught:
        site.lifecycle.reload_message(config)

    assert caught.value.message == (
        "Illegal to change a model's platform. For model m platform was tensorflow "
        "and new platform requested is torch"
    )


def test_changed_file_is_taken_over(site: Site, tmp_path: Path) -> None:
    site.lifecycle.start((site.model("m", 1),))
    file = tmp_path / "models.config"
    file.write_text(entry(site, "m", stable=1))
    site.lifecycle.reload_file(file)

    assert site.registry.find("m", label="stable").version == 1


@pytest.mark.parametrize("text", ["", "# half written", "model_config_list {", None])
def test_bad_file_changes_nothing(site: Site, tmp_path: Path, text: str | None) -> None:
    site.lifecycle.start((site.model("m", 1),))
    file = tmp_path / "models.config"
    if text is not None:
        file.write_text(text)
    site.lifecycle.reload_file(file)
    site.poll()

    assert {1: State.AVAILABLE} == site.states("m")


def test_label_that_came_too_early_in_a_file_is_assigned_at_a_later_look(site: Site, tmp_path: Path) -> None:
    site.lifecycle.start((site.model("m", 1),))
    file = tmp_path / "models.config"
    file.write_text(entry(site, "m", next=2))
    site.lifecycle.reload_file(file)
    assert {} == site.registry.labels()

    put_version(site.root / "m", 2)
    site.poll()
    site.lifecycle.reload_file(file)
    assert site.registry.find("m", label="next").version == 2
