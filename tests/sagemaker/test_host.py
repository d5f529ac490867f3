"""A container as processes: its variables, its readiness, and how it ends."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pierhead.errors import StartError
from pierhead_sagemaker.host import Container, container_environment, find_serve, model_server_ports
from pierhead_sagemaker.opt_ml import OptMl, lay_tree, private_folder
from pierhead_sagemaker.ports import free_range, require_free_port

Start = Callable[..., Container]


def patient(seconds: float) -> bool:
    """Wait, and never hasten."""
    return threading.Event().wait(seconds)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline
        patient(0.02)


@pytest.fixture
def start(tmp_path: Path, fake_serve: Any, free_port: int) -> Iterator[Start]:
    running: list[Container] = []

    def start_container(**variables: str) -> Container:
        environ = {**os.environ, **variables, "FAKE_REPORT": str(fake_serve.report_file)}
        tree = OptMl(tmp_path / "ml", tmp_path / "ml/model", tmp_path / "run")
        ports = model_server_ports(environ)
        running.append(
            Container(fake_serve.program, container_environment(environ, tree, port=free_port, ports=ports))
        )
        return running[-1]

    yield start_container
    for container in running:
        container.stop(lambda _seconds: True)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    tree = OptMl(Path("/x/ml"), Path("/x/ml/model"), Path("/x/run"))
    return container_environment(environ, tree, port=81, ports=free_range(2))


def test_the_platform_sets_folders_and_ports_and_leaves_the_rest() -> None:
    found = environment({"SAGEMAKER_BASE_DIR": "/opt/ml", "SAGEMAKER_BATCH": "true", "HOME": "/me"})

    assert (
        found["SAGEMAKER_BASE_DIR"],
        found["SAGEMAKER_BIND_TO_PORT"],
        found["PIERHEAD_RUN_DIR"],
    ) == ("/x/ml", "81", "/x/run")
    assert (found["SAGEMAKER_BATCH"], found["HOME"]) == ("true", "/me")


@pytest.mark.parametrize(("count", "ports"), [("1", 2), ("3", 6), ("0", 2), ("many", 2)])
def test_each_model_server_gets_a_pair_of_ports(count: str, ports: int) -> None:
    found = model_server_ports({"SAGEMAKER_TFS_INSTANCE_COUNT": count})

    assert ports == found.high - found.low + 1


def test_port_in_use_is_told_in_a_sentence() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(StartError, match=f"port {port} is in use"):
            require_free_port(port)

    require_free_port(port)


def test_the_program_of_the_checkout_is_found() -> None:
    assert (Path(__file__).parents[2] / "serve") == find_serve()


def test_folder_is_not_copied_and_the_tree_goes_away(tmp_path: Path) -> None:
    artifact = tmp_path / "artifact"
    artifact.mkdir()
    with private_folder() as folder:
        tree = lay_tree(artifact, folder)

        assert artifact == (tree.base / "model").readlink()

    assert (folder.exists(), artifact.is_dir()) == (False, True)


def test_container_becomes_ready_and_ends_on_sigterm(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    container = start()
    wait_until(container.is_ready)

    container.stop(patient)

    assert container.exit_status() == 0
    assert tuple(capfd.readouterr()) == ("", "fake: started\nfake: asked to end\n")


def test_container_leads_a_group_of_its_own(start: Start, fake_serve: Any) -> None:
    start()

    report = fake_serve.report()
    assert report["pid"] == report["group"] != os.getpgid(0)


def test_impatience_kills_a_container_that_ignores_sigterm(start: Start) -> None:
    container = start(FAKE_MODE="stubborn")
    wait_until(container.is_ready)

    container.stop(lambda _seconds: True)

    assert container.exit_status() == 128 + 9


def test_status_of_a_container_that_dies_is_passed_on(start: Start) -> None:
    container = start(FAKE_MODE="dies")

    wait_until(lambda: container.exit_status() is not None)

    assert container.exit_status() == 3
    assert not container.is_ready()


def test_program_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    program = tmp_path / "serve"
    program.touch()

    with pytest.raises(StartError, match="cannot be run"):
        Container(program, environment({}))
