"""The links that say which models are loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pierhead.contract.model_names import LONGEST_NAME
from pierhead.supervisor.models.publication import LONGEST_DIRECT_NAME, Publication
from pierhead.supervisor.run_folder import LONGEST_SOCKET_PATH, RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path, is_private=False)
    run.make_model_folders()
    return run


@pytest.fixture
def publication(run: RunFolder) -> Publication:
    return Publication(run)


def test_folder_of_a_model_lets_others_through_but_not_look(run: RunFolder, publication: Publication) -> None:
    folder = publication.make_folder(7)

    assert folder == run.models / "7"
    assert folder.stat().st_mode & 0o777 == 0o711


def test_loaded_model_is_a_relative_link_to_its_folder(run: RunFolder, publication: Publication) -> None:
    publication.make_folder(7)
    publication.publish("a", 7)

    assert os.readlink(run.loaded / "a") == "../models/7"
    assert (run.loaded / "a").resolve() == run.models.resolve() / "7"
    assert publication.number("a") is None


def test_number_is_that_of_the_direct_way(run: RunFolder, publication: Publication) -> None:
    publication.publish("a", 7)
    publication.open_direct("a", 7)
    assert publication.number("a") == 7
    publication.close_direct("a")

    assert publication.number("a") is None
    assert (run.loaded / "a").is_symlink()


def test_withdrawn_model_has_no_link(run: RunFolder, publication: Publication) -> None:
    publication.publish("a", 7)
    publication.open_direct("a", 7)
    publication.withdraw("a")

    assert [*run.loaded.iterdir(), *run.direct.iterdir()] == []
    publication.withdraw("a")


def test_link_is_replaced_whole(run: RunFolder, publication: Publication) -> None:
    publication.publish("a", 7)
    publication.publish("a", 8)

    assert os.readlink(run.loaded / "a") == "../models/8"
    assert {path.name for path in run.path.iterdir()} == {"models", "loaded", "direct", "universal"}


def test_longest_name_is_a_link(run: RunFolder, publication: Publication) -> None:
    name = LONGEST_NAME * "n"
    publication.publish(name, 1)
    publication.open_direct(name, 1)

    assert publication.number(name) == 1


def test_longest_direct_name_leaves_room_for_a_hundred_sockets() -> None:
    path = f"direct/{LONGEST_DIRECT_NAME * 'n'}/99.sock"

    assert len(path) <= LONGEST_SOCKET_PATH


def test_removed_folder_takes_its_content_along_and_no_links_target(
    run: RunFolder, publication: Publication, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    folder = publication.make_folder(7)
    (folder / "environment" / "lib").mkdir(parents=True)
    (folder / "link").symlink_to(outside)
    publication.remove_folder(7)

    assert not folder.exists()
    assert (outside / "file").exists()
    publication.remove_folder(7)
