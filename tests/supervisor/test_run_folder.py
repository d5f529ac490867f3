"""The folder of sockets and generated files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pierhead.errors import ConfigError
from pierhead.supervisor.run_folder import CONTENT, LONGEST_SOCKET_PATH, RunFolder


def test_fresh_folder_is_made_and_removed_where_none_is_wanted() -> None:
    run = RunFolder.make(None)

    assert run.nginx.is_dir()
    run.remove()
    assert not run.path.exists()


def test_fresh_folders_differ() -> None:
    first, second = RunFolder.make(None), RunFolder.make(None)

    assert first.path != second.path
    first.remove()
    second.remove()


def test_wanted_folder_is_made_with_its_parents_and_stays(short_folder: Path) -> None:
    run = RunFolder.make(short_folder / "a" / "b")

    assert run.nginx.is_dir()
    run.remove()
    assert list((short_folder / "a" / "b").iterdir()) == []


def test_everything_lies_in_the_folder(short_folder: Path) -> None:
    run = RunFolder.make(short_folder)

    paths = [value for name, value in vars(run).items() if name != "path" and isinstance(value, Path)]
    assert sorted(CONTENT) == sorted(path.name for path in paths)
    assert {short_folder} == {path.parent for path in paths}


def test_leftovers_of_a_killed_stack_are_removed_and_strangers_kept(short_folder: Path) -> None:
    (short_folder / "mine.txt").touch()
    (short_folder / "health.sock").touch()
    (short_folder / "nginx").mkdir()
    (short_folder / "nginx" / "nginx.pid").touch()
    (short_folder / "environment" / "bin").mkdir(parents=True)

    run = RunFolder.make(short_folder)

    assert sorted(path.name for path in short_folder.iterdir()) == ["metrics", "mine.txt", "nginx"]
    assert list(run.nginx.iterdir()) == []
    run.remove()
    assert [path.name for path in short_folder.iterdir()] == ["mine.txt"]


def test_folder_that_cannot_be_made_is_refused_with_its_variable(short_folder: Path) -> None:
    (short_folder / "file").touch()

    with pytest.raises(ConfigError, match="PIERHEAD_RUN_DIR="):
        RunFolder.make(short_folder / "file" / "run")


def test_longest_path_of_a_socket_is_accepted(short_folder: Path) -> None:
    room = LONGEST_SOCKET_PATH - len(os.fsencode(short_folder / "x" / "workers.sock")) + 1

    assert RunFolder.make(short_folder / (room * "x")).nginx.is_dir()


def test_multi_model_endpoint_needs_room_for_longer_paths(short_folder: Path) -> None:
    room = LONGEST_SOCKET_PATH - len(os.fsencode(short_folder / "x" / "workers.sock")) + 1
    run = RunFolder.make(short_folder / (room * "x"))

    with pytest.raises(ConfigError, match="too long"):
        run.make_model_folders()


def test_longer_path_of_a_socket_is_refused(short_folder: Path) -> None:
    room = LONGEST_SOCKET_PATH - len(os.fsencode(short_folder / "x" / "workers.sock")) + 2

    with pytest.raises(ConfigError, match="too long"):
        RunFolder.make(short_folder / (room * "x"))


@pytest.mark.skipif(os.geteuid() != 0, reason="nginx's workers are other users only below root")
def test_other_users_may_pass_through_the_folder_but_not_list_it(short_folder: Path) -> None:
    run = RunFolder.make(short_folder)

    assert run.path.stat().st_mode & 0o777 == 0o711
