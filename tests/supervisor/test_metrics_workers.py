"""The files are prometheus_client's own, written by processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pierhead.supervisor.metrics.workers import WorkerMetrics, is_running

WRITER = """
import sys
from prometheus_client import Counter, Gauge, Histogram, Summary
n = int(sys.argv[1])
Counter("c", "C", ["x"]).labels('a"b').inc(n)
Summary("s", "S").observe(n)
histogram = Histogram("h", "H", buckets=(1, 10))
for value in (0.5, 5, 50):
    histogram.observe(value)
for mode in ("all", "liveall", "min", "max", "sum", "livesum", "mostrecent"):
    Gauge(f"g_{mode}", mode, multiprocess_mode=mode).set(n)
if len(sys.argv) > 2:
    print("ready", flush=True)
    input()
"""


def write(folder: Path, number: int) -> None:
    subprocess.run(
        [sys.executable, "-c", WRITER, str(number)],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        check=True,
        timeout=30,
    )


def lines(metrics: WorkerMetrics) -> list[str]:
    metrics.refresh(0)
    return [line for line in metrics.page().encode().decode().splitlines() if not line.startswith("#")]


def everybody_runs(_pid: int) -> bool:
    return True


def test_values_of_several_workers_become_one(tmp_path: Path) -> None:
    write(tmp_path, 2)
    write(tmp_path, 5)
    found = lines(WorkerMetrics(tmp_path, everybody_runs))

    assert {
        'c_total{x="a\\"b"} 7',
        "s_count 2",
        "s_sum 7",
        'h_bucket{le="1"} 2',
        'h_bucket{le="10"} 4',
        'h_bucket{le="+Inf"} 6',
        "h_sum 111",
        "h_count 6",
        "g_min 2",
        "g_max 5",
        "g_sum 7",
        "g_livesum 7",
        "g_mostrecent 5",
    } <= set(found)
    assert len([line for line in found if line.startswith("g_all{pid=")]) == 2
    assert len([line for line in found if line.startswith("g_liveall{pid=")]) == 2


def test_counts_outlive_the_worker_and_its_files_and_gauges_do_not(tmp_path: Path) -> None:
    metrics = WorkerMetrics(tmp_path, is_running)
    for number in (1, 2, 3):
        write(tmp_path, number)
        assert f'c_total{{x="a\\"b"}} {sum(range(number + 1))}' in lines(metrics)

    found = lines(metrics)
    assert not list(tmp_path.iterdir())
    assert {'h_bucket{le="+Inf"} 9', "h_count 9", "s_count 3"} <= set(found)
    assert not [line for line in found if line.startswith("g_")]


def test_total_is_the_same_before_and_after_a_death(tmp_path: Path) -> None:
    metrics = WorkerMetrics(tmp_path, is_running)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, "4", "wait"],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout
        writer.stdout.readline()
        before = lines(metrics)
        writer.kill()

    assert [line for line in before if not line.startswith("g_")] == lines(metrics)


def test_damaged_file_is_an_error_and_its_bounds_are_kept(tmp_path: Path) -> None:
    (tmp_path / "counter_1.db").write_bytes(b"\xff\x00\x00\x00" * 16)

    with pytest.raises(ValueError, match="damaged"):
        WorkerMetrics(tmp_path, everybody_runs).refresh(0)


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\x08\0\0\0" + b"\0" * 60])
def test_file_that_was_just_made_holds_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "counter_1.db").write_bytes(data)
    (tmp_path / "other.db").write_text("left alone")

    assert not lines(WorkerMetrics(tmp_path, everybody_runs))
