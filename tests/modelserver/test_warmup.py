from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.registry import Registry, Retries, State, VersionStatus
from pierhead.modelserver.warmup import RECORDS, WarmingPlatform
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import write_tensor

PREDICT_LOG = 6
SESSION_RUN_LOG = 5


def record(field: int, request: bytes) -> bytes:
    """Return a PredictionLog on the wire: a log in that field, whose first field is the request."""
    log = delimited(1, request)
    return delimited(field, log)


def delimited(field: int, content: bytes) -> bytes:
    size = len(content)
    varint = bytes([size & 0x7F | 0x80, size >> 7]) if size > 0x7F else bytes([size])
    return bytes([field << 3 | 2]) + varint + content


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """Return a version's folder that has a file of records."""
    (tmp_path / RECORDS).parent.mkdir()
    (tmp_path / RECORDS).touch()
    return tmp_path


@pytest.fixture
def predict_record(stubs: ServingStubs) -> bytes:
    request = stubs.predict.PredictRequest()
    request.model_spec.name, request.model_spec.version.value = "recorded as another", 99
    write_tensor(np.zeros(1, np.float32), request.inputs["x"])
    return record(PREDICT_LOG, request.SerializeToString())


def warm(
    platform: FakePlatform, records: Sequence[bytes], folder: Path, iterations: int = 1
) -> VersionStatus:
    read: Callable[[Path], Iterator[bytes]] = lambda _: iter(records)  # noqa: E731
    return Registry(WarmingPlatform(platform, read, iterations), Retries()).load("m", 1, folder)


def test_recorded_requests_run_before_the_version_is_available(version: Path, predict_record: bytes) -> None:
    platform = FakePlatform()

    assert VersionStatus(1, State.AVAILABLE) == warm(platform, [predict_record] * 2, version, 3)
    assert len(platform.runtimes[0].runs) == 6


def test_version_without_a_file_is_available_at_once(tmp_path: Path, predict_record: bytes) -> None:
    platform = FakePlatform()

    assert warm(platform, [predict_record], tmp_path).state is State.AVAILABLE
    assert not platform.runtimes[0].runs


def test_record_without_a_log_is_skipped(version: Path) -> None:
    assert warm(FakePlatform(), [b""], version).state is State.AVAILABLE


def test_refused_request_fails_the_load_and_closes_the_model(version: Path, stubs: ServingStubs) -> None:
    platform = FakePlatform()
    request = stubs.predict.PredictRequest()
    request.model_spec.signature_name = "none"
    status = warm(platform, [record(PREDICT_LOG, request.SerializeToString())], version)

    assert (State.END, Code.FAILED_PRECONDITION) == (status.state, status.code)
    assert status.message == 'Serving signature key "none" not found.'
    assert platform.runtimes[0].is_unloaded


def test_failed_warmup_is_tried_again_like_a_failed_load(version: Path, predict_record: bytes) -> None:
    platform = FakePlatform()
    tries = iter([[b"\xff"], [predict_record]])
    warming = WarmingPlatform(platform, lambda _: iter(next(tries)))
    registry = Registry(warming, Retries(1))

    assert registry.load("m", 1, version).state is State.AVAILABLE
    assert len(platform.attempts) == 2


@pytest.mark.parametrize(
    ("records", "code", "message"),
    [
        ([record(SESSION_RUN_LOG, b"")], Code.UNIMPLEMENTED, "Unsupported log_type for warmup"),
        ([b"\xff"], Code.INVALID_ARGUMENT, "Failed to parse warmup record"),
        ([record(PREDICT_LOG, b"\xff")], Code.INVALID_ARGUMENT, "Failed to parse warmup record"),
        ([b""] * 1001, Code.INVALID_ARGUMENT, "Number of warmup records exceeds the maximum (1000) at "),
    ],
)
def test_records_that_cannot_be_replayed_fail_the_load(
    version: Path, records: list[bytes], code: Code, message: str
) -> None:
    status = warm(FakePlatform(), records, version)

    assert (State.END, code) == (status.state, status.code)
    assert message in status.message


def test_damaged_file_fails_the_load(version: Path) -> None:
    def damaged(_: Path) -> Iterator[bytes]:
        yield b""
        raise ServingError(Code.DATA_LOSS, "the sum is wrong")

    status = Registry(WarmingPlatform(FakePlatform(), damaged), Retries()).load("m", 1, version)

    assert (State.END, Code.DATA_LOSS) == (status.state, status.code)


@pytest.mark.parametrize(("last", "status"), [(b"", "OK"), (b"\xff", "INVALID_ARGUMENT")])
def test_monitoring_is_told_of_records_and_status(
    version: Path, predict_record: bytes, last: bytes, status: str
) -> None:
    metrics = Metrics()
    platform = WarmingPlatform(FakePlatform(), lambda _: iter([predict_record, last]), metrics=metrics)
    Registry(platform, Retries()).load("m", 1, version)
    labels = f'{{model_path="{version}",status="{status}"}}'
    page = metrics.page().decode().splitlines()

    assert f":tensorflow:serving:model_warmup_records_read{labels} 2" in page
    assert f":tensorflow:serving:model_warmup_latency_count{labels} 1" in page


def test_version_without_a_file_leaves_nothing_on_the_page(tmp_path: Path) -> None:
    metrics = Metrics()
    WarmingPlatform(FakePlatform(), lambda _: iter([]), metrics=metrics).load(tmp_path)

    assert metrics.page() == Metrics().page()
