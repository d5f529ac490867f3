"""Warm-up: requests recorded beside a version are replayed before it becomes available.

The first run of a signature is the slow one; it should not be a client's. The records go through the same
methods as gRPC requests, on a data plane that knows the new version alone, and their responses are dropped.
Source: TensorFlow Serving's contract, section 3.3.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from pierhead.errors import Code, ServingError
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.declared_messages import declare_messages
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.prediction_service import PredictionService
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries, Servable
from pierhead.modelserver.runtimes.base import Platform, Runtime

__all__ = ["RECORDS", "WarmingPlatform"]

LOG = logging.getLogger(__name__)
RECORDS = Path("assets.extra", "tf_serving_warmup_requests")
MOST_RECORDS = 1000
NAME = "warm-up"
# The generated class of PredictionLog needs TensorFlow; on the wire a message is the same as bytes.
MESSAGES = {
    "PredictionLog": {
        "classify_log": (2, "RequestLog"),
        "regress_log": (3, "RequestLog"),
        "multi_inference_log": (4, "RequestLog"),
        "session_run_log": (5, "RequestLog"),
        "predict_log": (6, "RequestLog"),
        "predict_streamed_log": (7, "RequestLog"),
    },
    "RequestLog": {"request": (1, "repeated bytes")},
}


class _NoDeadline:
    """What the methods ask of a gRPC context."""

    def time_remaining(self) -> None:
        """Return that nobody waits."""


@dataclass(frozen=True)
class _Method:
    """A method that can be replayed: the class of its requests and what answers them."""

    request: Any
    answer: Callable[[Any, Any], object]


class WarmingPlatform:
    """Loads another platform's models and replays each version's records `iterations` times.

    `read_records` yields the records of a file, and raises ServingError DATA_LOSS for a damaged one;
    `metrics` are told of each warm-up.
    """

    def __init__(
        self,
        platform: Platform,
        read_records: Callable[[Path], Iterator[bytes]],
        iterations: int = 1,
        metrics: Metrics | None = None,
    ) -> None:
        self._platform = platform
        self._read_records = read_records
        self._iterations = iterations
        self._metrics = metrics
        self._codec = ProtobufCodec()
        self._record = declare_messages("tensorflow.serving", MESSAGES)["PredictionLog"]

    def load(self, folder: Path) -> Runtime:
        """Return the model in a version's folder, warm; raise ServingError where that fails."""
        runtime = self._platform.load(folder)
        with ExitStack() as undoing:
            undoing.callback(runtime.unload)
            if (folder / RECORDS).is_file():
                self._warm(runtime, folder)
            undoing.pop_all()
        return runtime

    def _warm(self, runtime: Runtime, folder: Path) -> None:
        start, methods, file = time.monotonic(), self._methods(runtime), folder / RECORDS
        records, code = 0, Code.UNKNOWN
        try:
            for record in self._records(file):
                records += 1
                self._replay(methods, record, file)
            code = Code.OK
        except ServingError as refusal:
            code = refusal.code
            raise
        finally:
            seconds = time.monotonic() - start
            self._tell(folder, code, records, seconds)
        LOG.info("model warmed up path=%s records=%d seconds=%.3f", file, records, seconds)

    def _records(self, file: Path) -> Iterator[bytes]:
        for number, record in enumerate(self._read_records(file), 1):
            if number > MOST_RECORDS:
                message = f"Number of warmup records exceeds the maximum ({MOST_RECORDS}) at {file}"
                raise ServingError(Code.INVALID_ARGUMENT, message)
            yield record

    def _tell(self, folder: Path, code: Code, records: int, seconds: float) -> None:
        if self._metrics:
            labels = str(folder), code.name
            self._metrics.model_warmup_latency.record(seconds * 1e6, *labels)
            self._metrics.model_warmup_records_read.add(*labels, amount=records)

    def _methods(self, runtime: Runtime) -> dict[str, _Method]:
        registry = Registry(self._platform, Retries())
        registry.add(Servable(NAME, 1, runtime))
        service, stubs = PredictionService(DataPlane(registry), self._codec), self._codec.stubs
        return {
            "predict_log": _Method(stubs.predict.PredictRequest, service.predict),
            "classify_log": _Method(stubs.classification.ClassificationRequest, service.classify),
            "regress_log": _Method(stubs.regression.RegressionRequest, service.regress),
            "multi_inference_log": _Method(stubs.inference.MultiInferenceRequest, service.multi_inference),
        }

    def _replay(self, methods: dict[str, _Method], record: bytes, file: Path) -> None:
        """Run one record; one without a log is skipped."""
        try:
            for field, log in self._record.FromString(record).ListFields():
                if field.name not in methods:
                    message = f"Unsupported log_type for warmup: {field.name}"
                    raise ServingError(Code.UNIMPLEMENTED, message)
                method = methods[field.name]
                request = method.request.FromString(b"".join(log.request))
                _readdress(request)
                for _ in range(self._iterations):
                    method.answer(request, _NoDeadline())
        except DecodeError as problem:
            message = f"Failed to parse warmup record of {file}"
            raise ServingError(Code.INVALID_ARGUMENT, message) from problem


def _readdress(request: Any) -> None:
    """Let a request be for the version that is warmed up, whatever model and version it was recorded for."""
    for part in request.tasks if hasattr(request, "tasks") else [request]:
        part.model_spec.name = NAME
        part.model_spec.ClearField("version")
        part.model_spec.ClearField("version_label")
