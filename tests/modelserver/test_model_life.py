"""The life of versions in a real server: found on disk, replaced, held by runs, reloaded, closed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests
from tests.modelserver.aged_models import build_aged_models, config_text, reload_request
from tests.modelserver.running_server import RunningServer, running_server, wait_until

from pierhead.serving_stubs import ServingStubs

SECONDS = 60
FOREVER = 2_000_000_000
SLACK_MEGABYTES = 100


@dataclass(frozen=True)
class Harbour:
    """A server of the model `ship`, and the base path that a test fills."""

    server: RunningServer
    root: Path
    config: Path
    half: Path
    aged: Path

    def moor(self, version: int, source: Path) -> None:
        """Put a version on disk, at once and whole."""
        arriving = self.root / f"arriving-{version}"
        shutil.copytree(source, arriving, copy_function=os.link)
        arriving.rename(self.root / str(version))

    def leave(self, version: int) -> None:
        """Take a version from disk, at once."""
        leaving = (self.root / str(version)).rename(self.root / f"leaving-{version}")
        shutil.rmtree(leaving)

    def states(self, name: str = "ship") -> dict[int, str]:
        answer = requests.get(self.server.url(f"/v1/models/{name}"), timeout=SECONDS).json()
        return {int(each["version"]): each["state"] for each in answer.get("model_version_status", [])}

    def wait_for(self, expected: dict[int, str], name: str = "ship") -> None:
        """Return when these versions are in these states, whatever others there are."""
        wait_until(lambda: expected.items() <= self.states(name).items())

    def predict(self, body: Any, choice: str = "") -> requests.Response:
        url = self.server.url(f"/v1/models/ship{choice}:predict")
        return requests.post(url, json.dumps(body).encode(), timeout=SECONDS)

    def megabytes(self) -> float:
        lines = Path(f"/proc/{self.server.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@pytest.fixture
def harbour(
    half_model: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    free_ports: Callable[[int], int],
) -> Iterator[Harbour]:
    root, config = tmp_path / "ship", tmp_path / "models.config"
    config.write_text(config_text(root))
    (half,) = half_model.iterdir()
    shutil.copytree(half, root / "1", copy_function=os.link)
    flags = [
        f"--model_config_file={config}",
        "--model_config_file_poll_wait_seconds=1",
        "--max_num_load_retries=1000000",
        "--load_retry_interval_micros=20000",
        "--rest_api_timeout_in_ms=3000",
    ]
    with running_server(free_ports(2), root, *flags, known="/v1/models/ship") as running:
        yield Harbour(running, root, config, half, build_aged_models(tmp_path_factory))


def test_versions_come_and_go(harbour: Harbour, stubs: ServingStubs) -> None:
    # A version that is half written is tried again until it is whole; the old one serves meanwhile.
    half_written = harbour.root / "2"
    half_written.mkdir()
    harbour.wait_for({1: "AVAILABLE", 2: "LOADING"})
    assert {"outputs": 2.5} == harbour.predict({"inputs": 1}).json()
    shutil.copytree(harbour.half, half_written, copy_function=os.link, dirs_exist_ok=True)
    harbour.wait_for({1: "END", 2: "AVAILABLE"})

    # A run in flight ends as it would have, and only then its version does.
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(harbour.predict, {"signature_name": "count", "inputs": FOREVER})
        harbour.moor(3, harbour.half)
        harbour.wait_for({2: "UNLOADING"})
        assert not run.done()
        assert harbour.states()[3] == "AVAILABLE"
        assert (504, "Timed out waiting for notification") == (
            run.result().status_code,
            run.result().json()["error"],
        )
    harbour.wait_for({1: "END", 2: "END", 3: "AVAILABLE"})

    # Going back to an older version.
    harbour.moor(5, harbour.half)
    harbour.wait_for({3: "END", 5: "AVAILABLE"})
    harbour.leave(5)
    harbour.wait_for({3: "AVAILABLE", 5: "END"})

    # Labels, by gRPC and by the file, which wins in the end because it is read again.
    with grpc.insecure_channel(f"127.0.0.1:{harbour.server.grpc_port}") as channel:
        service = stubs.ModelServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            service.HandleReloadConfigRequest(reload_request(stubs, harbour.root, stable=9), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "Request to assign label to version 9 of model ship" in str(caught.value.details())
        text = config_text(harbour.root)
        label = "version_labels { key: 'stable' value: 3 }"
        harbour.config.write_text(text.replace("'tensorflow'", f"'tensorflow' {label}"))
        wait_until(lambda: harbour.predict({"inputs": 1}, "/labels/stable").status_code == 200)
        request = reload_request(stubs, harbour.root, stable=3)
        response = service.HandleReloadConfigRequest(request, timeout=SECONDS)
        assert (0, "") == (response.status.error_code, response.status.error_message)
    assert harbour.predict({"inputs": 1}, "/labels/canary").json() == {
        "error": "Unrecognized servable version label: canary"
    }

    # A model new in the file is served, one left out is not; the end comes amid attempts to load.
    harbour.config.write_text(config_text(harbour.aged / "keras"))
    harbour.wait_for({1: "AVAILABLE"}, "keras")
    harbour.wait_for({3: "END"})
    harbour.config.write_text(config_text(harbour.aged / "keras", harbour.aged / "no_model"))
    harbour.wait_for({1: "LOADING"}, "no_model")
    harbour.server.process.send_signal(signal.SIGTERM)
    _, log = harbour.server.process.communicate(timeout=SECONDS)

    assert harbour.server.process.returncode == 0
    assert "Traceback" not in log.decode()


def test_memory_of_an_unloaded_version_is_given_back(harbour: Harbour) -> None:
    harbour.moor(2, harbour.aged / "large" / "1")
    harbour.wait_for({1: "END", 2: "AVAILABLE"})
    before = harbour.megabytes()
    for version in (3, 4, 5, 6):
        harbour.moor(version, harbour.aged / "large" / "1")
        harbour.wait_for({version - 1: "END", version: "AVAILABLE"})
        assert harbour.predict({"inputs": 1}).json() == {"outputs": 2.0}

    assert harbour.megabytes() - before < SLACK_MEGABYTES
