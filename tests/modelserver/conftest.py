"""Models and servers that the model server's tests share."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.modelserver.running_server import RunningServer, running_server

from pierhead.serving_stubs import ServingStubs, import_serving_stubs

VERSION = 123


@pytest.fixture(scope="session")
def half_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the base path of `half`, built once a run: version 123 of y = x / 2 + 2."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "half" / str(VERSION)
    script = Path(__file__).with_name("build_models.py")
    with (shared / "half.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            command = [sys.executable, str(script), str(folder)]
            subprocess.run(command, check=True, capture_output=True, timeout=150)
    return folder.parent


@pytest.fixture(scope="session")
def server(half_model: Path, free_ports: Callable[[int], int]) -> Iterator[RunningServer]:
    """Return a real server of `half`, with a time limit of one second for REST runs."""
    with running_server(free_ports(2), half_model, "--rest_api_timeout_in_ms=1000") as running:
        yield running


@pytest.fixture(scope="session")
def full_server(
    half_model: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """Return a real server of `half` with all that is off by default: monitoring, health, stricter checks.

    The profiler, which is on by default, is off.
    """
    config = tmp_path_factory.mktemp("monitoring") / "monitoring.config"
    config.write_text("prometheus_config { enable: true }")
    flags = [
        f"--monitoring_config_file={config}",
        "--enable_grpc_healthcheck_service",
        "--enable_signature_method_name_check",
        "--enable_profiler=false",
    ]
    with running_server(free_ports(2), half_model, *flags) as running:
        yield running


@pytest.fixture(scope="session")
def stubs() -> ServingStubs:
    return import_serving_stubs()
