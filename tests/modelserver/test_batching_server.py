"""A real server that batches: requests of both doors in one run, and what clients see when that fails."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from tests.modelserver.running_server import RunningServer, run_to_end, running_server

from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import read_tensor, write_tensor

SECONDS = 60
# Nothing runs before its batch is full, save after a time that fails the test.
PARAMETERS = """
    max_batch_size { value: 4 } batch_timeout_micros { value: 100000000 } max_enqueued_batches { value: 1 }
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    script = Path(__file__).with_name("build_batch_model.py")
    command = [sys.executable, str(script), str(folder / "1")]
    subprocess.run(command, check=True, capture_output=True, timeout=150)
    return folder


@pytest.fixture(scope="module")
def server(model: Path, free_ports: Callable[[int], int]) -> Iterator[RunningServer]:
    file = model / "batching.config"
    file.write_text(PARAMETERS)
    monitoring = model / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    flags = [
        f"--monitoring_config_file={monitoring}",
        "--enable_batching",
        f"--batching_parameters_file={file}",
        "--rest_api_timeout_in_ms=0",
        "--rest_api_num_threads=1",
    ]
    with running_server(free_ports(2), model, *flags) as running:
        yield running


def post(server: RunningServer, rows: list[float], padding: str = "") -> requests.Response:
    body = json.dumps({"inputs": rows}) + padding
    return requests.post(server.url("/v1/models/half:predict"), body, timeout=SECONDS)


def predict(server: RunningServer, stubs: ServingStubs, rows: list[float]) -> Any:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    write_tensor(np.array(rows, np.float32), request.inputs["x"])
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        return stubs.PredictionServiceStub(channel).Predict(request, timeout=SECONDS)


@pytest.mark.parametrize("padding", ["", " " * 70_000], ids=["small", "large"])
def test_requests_of_both_doors_join_one_batch_and_hold_no_rest_thread(
    server: RunningServer, stubs: ServingStubs, padding: str
) -> None:
    with concurrent.futures.ThreadPoolExecutor(3) as clients:
        rest = [clients.submit(post, server, [row], padding) for row in (1.0, 2.0)]
        response = clients.submit(predict, server, stubs, [3.0, 4.0]).result(SECONDS)
        answers = [client.result(SECONDS).json()["outputs"] for client in rest]

    assert answers == [{"rows": [4], "twice": [2.0]}, {"rows": [4], "twice": [4.0]}]
    assert read_tensor(response.outputs["rows"], "rows").tolist() == [4, 4]
    assert read_tensor(response.outputs["twice"], "twice").tolist() == [6.0, 8.0]


def test_full_queue_is_told_as_503(server: RunningServer) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as clients:
        pair = [clients.submit(post, server, [1.0, 2.0, 3.0]) for _ in range(2)]
        refused = next(concurrent.futures.as_completed(pair, SECONDS)).result()
        post(server, [4.0])
        statuses = sorted(client.result(SECONDS).status_code for client in pair)

    assert [200, 503] == statuses
    assert "currently 1 batches enqueued and max_enqueued_batches is 1" in refused.json()["error"]


def test_request_beyond_the_largest_batch_is_told_as_400(server: RunningServer) -> None:
    answer = post(server, [1.0] * 5)

    assert answer.status_code == 400
    assert answer.json() == {"error": "Task size 5 is larger than maximum input batch size 4"}


def test_page_tells_of_batches(server: RunningServer) -> None:
    assert post(server, [1.0, 2.0, 3.0, 4.0]).status_code == 200
    page = requests.get(server.url("/monitoring/prometheus/metrics"), timeout=SECONDS).text
    pairs = [line.rpartition(" ") for line in page.splitlines() if ":batching_session:" in line]
    counts = {name.rpartition("batching_session:")[2]: number for name, _, number in pairs}

    runs = counts["wrapped_run_count{}"]
    assert int(runs) > 0
    assert counts['padding_size_count{execution_batch_size="4"}'] == runs
    assert counts["processed_batch_size_count{}"] == runs


def test_wrong_parameters_file_ends_the_start(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "batching.config"
    file.write_text("max_batch_size { value: 4 } allowed_batch_sizes: 2")
    ended = run_to_end(
        "--enable_batching",
        f"--batching_parameters_file={file}",
        f"--model_base_path={model}",
        "--max_num_load_retries=0",
    )

    assert ended.returncode == 255
    assert "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 2; expected 4" in (
        ended.stdout
    )
