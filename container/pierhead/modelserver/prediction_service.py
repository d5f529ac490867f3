"""PredictionService of TensorFlow Serving: each method reads its request, runs, and builds its response.

Codes and messages: TensorFlow Serving's contract, section 4.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from pierhead.errors import Code, ServingError
from pierhead.modelserver.classification import CLASSIFY
from pierhead.modelserver.dataplane import Call, DataPlane, Prediction
from pierhead.modelserver.example_methods import INPUTS, ExamplesMethod
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.multi_inference import Task, task_calls
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.regression import REGRESS

__all__ = ["Method", "PredictionService", "counted"]

LONGEST_LIMIT_MS = 86_400_000
Method = Callable[[Any, grpc.ServicerContext], Any]
Result = TypeVar("Result")


class PredictionService:
    """The methods, by gRPC's names in this project's spelling; each raises ServingError for a refusal."""

    def __init__(self, plane: DataPlane, codec: ProtobufCodec) -> None:
        self._plane = plane
        self._codec = codec

    def predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Answer Predict."""
        spec = self._codec.read_spec(request)
        self._plane.find(spec)
        inputs = self._codec.read_inputs(request)
        call = self._plane.predict_call(spec, inputs, request.output_filter)
        with call.measured():
            return self._codec.prediction(self._run(call, context))

    def classify(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Answer Classify."""
        prediction, result = self._run_examples(CLASSIFY, request, context)
        return self._codec.classification(prediction.spec, result)

    def regress(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Answer Regress."""
        prediction, result = self._run_examples(REGRESS, request, context)
        return self._codec.regression(prediction.spec, result)

    def multi_inference(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Answer MultiInference."""
        tasks = [Task(self._codec.read_task_spec(task), task.method_name) for task in request.tasks]
        examples = self._codec.read_examples(request.input)
        results = []
        for method, call in task_calls(self._plane, tasks, examples):
            with call.measured():
                prediction = self._run(call, context)
            results.append((prediction.spec, method.read(prediction.outputs, len(examples))))
        if self._plane.metrics:
            self._plane.metrics.request_example_counts.record(len(examples), tasks[0].spec.name)
            self._plane.metrics.request_example_count_total.add(tasks[0].spec.name, amount=len(examples))
        return self._codec.multi_inference(results)

    def get_model_metadata(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Answer GetModelMetadata."""
        spec = self._codec.read_spec(request)
        self._codec.check_metadata_fields(request.metadata_field)
        return self._codec.metadata(self._plane.metadata(spec))

    def _run_examples(
        self, method: ExamplesMethod[Result], request: Any, context: grpc.ServicerContext
    ) -> tuple[Prediction, Result]:
        spec = self._codec.read_spec(request)
        call = self._plane.examples_call(spec, method, self._codec.read_examples(request.input))
        with call.measured():
            prediction = self._run(call, context)
            return prediction, method.read(prediction.outputs, call.inputs[INPUTS].size)

    def _run(self, call: Call, context: grpc.ServicerContext) -> Prediction:
        if call.is_short:
            return self._plane.run(call, in_caller=True)
        return self._plane.run(call, timeout_ms=time_limit(context))


def time_limit(context: grpc.ServicerContext) -> int:
    """Return the milliseconds that a run may take for a client that waits so long, 0 without a limit.

    Rounded up to a power of two: a runtime keeps something for each limit that it has met. The client ends
    the call at its own time; the limit is what frees the thread. Raises ServingError DEADLINE_EXCEEDED where
    no time is left.
    """
    seconds = context.time_remaining()
    if seconds is None or seconds * 1000 > LONGEST_LIMIT_MS:
        return 0
    if seconds <= 0:
        raise ServingError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
    return int(2 ** math.ceil(math.log2(max(seconds * 1000, 1))))


def counted(metrics: Metrics, api: str, method: Method) -> Method:
    """Return a method whose calls are counted and, where they succeed, timed."""

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        start, model = time.perf_counter(), request.model_spec.name
        try:
            response = method(request, context)
        except ServingError as refusal:
            metrics.request_count.add(model, refusal.code.name)
            raise
        metrics.request_count.add(model, Code.OK.name)
        metrics.request_latency.record((time.perf_counter() - start) * 1e6, model, api, "GRPC")
        return response

    return answer
