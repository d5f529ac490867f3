"""Stand-ins for a model server: a `Backend` without one, and a gRPC server without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Barrier, Event
from typing import Any

import grpc
import numpy as np

from pierhead.control import ModelPlan, ServerAddress, ServicePlan
from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature, TensorSpec
from pierhead.service.backend import Prediction, RestAnswer
from pierhead.service.call import Call
from pierhead.service.channel import LazyChannel
from pierhead.serving_stubs import ServingStubs, import_serving_stubs
from pierhead.tensor_protos import DTYPE_NUMBERS, read_tensor, write_tensor

HALF = Signature(
    name="serving_default",
    method_name="tensorflow/serving/predict",
    inputs={"x": TensorSpec("DT_FLOAT", (-1,))},
    outputs={"y": TensorSpec("DT_FLOAT", (-1,))},
)
MODELS = (ModelPlan("a", (1,)), ModelPlan("b", (1, 2)))


def half_plus_two(values: Array) -> Array:
    return (values * 0.5 + 2).astype(np.float32)


def make_plan(
    *, servers: tuple[ServerAddress, ...] = (ServerAddress(9000, 8501),), **fields: Any
) -> ServicePlan:
    defaults: dict[str, Any] = {
        "settings": {},
        "socket": "",
        "control_socket": "",
        "models": MODELS,
        "default_model": "a",
        "code": None,
        "hooks": None,
    }
    return ServicePlan(servers=servers, **(defaults | fields))


@dataclass
class FakeBackend:
    """Computes half plus two for every model, refuses on demand, and remembers the calls."""

    refusal: ServingError | None = None
    calls: list[tuple[str, int | None, str]] = field(default_factory=list)
    inputs: list[Mapping[str, Array]] = field(default_factory=list)
    # What REST answers, for a model server that tells no signatures.
    rest: RestAnswer | None = None
    forwarded: list[bytes] = field(default_factory=list)

    def next_server(self) -> ServerAddress:
        return ServerAddress(9000, 8501)

    def served_version(self, model: str, version: int | None) -> int | None:  # noqa: ARG002
        return version or 2

    def channel(self, server: ServerAddress) -> grpc.Channel:  # noqa: ARG002
        return LazyChannel(lambda: grpc.insecure_channel("127.0.0.1:1"))

    def tells_signatures(self, call: Call) -> bool:  # noqa: ARG002
        return self.rest is None

    def forward(self, call: Call, body: bytes) -> RestAnswer:
        self.calls.append((call.model, call.version, call.method))
        self.forwarded.append(body)
        return self.rest or RestAnswer(200, "application/json", b"{}")

    def signature(self, call: Call, name: str) -> Signature:  # noqa: ARG002
        if name not in {"", "serving_default"}:
            raise ServingError(Code.INVALID_ARGUMENT, f'Serving signature name: "{name}" not found')
        return HALF

    def predict(
        self,
        call: Call,
        signature_name: str,  # noqa: ARG002
        inputs: Mapping[str, Array],
    ) -> Prediction:
        self.calls.append((call.model, call.version, call.method))
        self.inputs.append(inputs)
        if self.refusal is not None:
            raise self.refusal
        return Prediction({"y": half_plus_two(inputs["x"])}, 2)


@dataclass
class FakeModelServer:
    """A gRPC server with tensorflow-serving-api's services; it knows one model, `a`, and one signature."""

    stubs: ServingStubs
    version: int = 1
    delay: float = 0.0
    together: Barrier | None = None
    input_name: str = "x"
    metadata_calls: int = 0
    predict_calls: int = 0
    labels: list[str] = field(default_factory=list)
    metadata_refusal: grpc.StatusCode | None = None

    def metadata(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.metadata_calls += 1
        if self.metadata_refusal is not None:
            context.abort(self.metadata_refusal, "asked to refuse")
        self._refuse_strangers(request, context)
        metadata = self.stubs.get_model_metadata
        signatures = metadata.SignatureDefMap()
        definition = signatures.signature_def["serving_default"]
        definition.method_name = HALF.method_name
        for infos, name in ((definition.inputs, self.input_name), (definition.outputs, "y")):
            infos[name].dtype = DTYPE_NUMBERS["DT_FLOAT"]
            infos[name].tensor_shape.dim.add().size = -1
        definition.inputs[self.input_name].tensor_shape.dim.add().size = 1
        definition.outputs["y"].tensor_shape.unknown_rank = True
        answer = metadata.GetModelMetadataResponse()
        answer.model_spec.version.value = self.version
        answer.metadata["signature_def"].Pack(signatures)
        return answer

    def predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.predict_calls += 1
        self._refuse_strangers(request, context)
        if self.delay:
            Event().wait(self.delay)
        if self.together is not None:
            self.together.wait()
        if list(request.inputs) != [self.input_name]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "input size does not match signature")
        values = read_tensor(request.inputs[self.input_name], self.input_name)
        if values.ndim > 2:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
        answer = self.stubs.predict.PredictResponse()
        answer.model_spec.version.value = self.version
        write_tensor(half_plus_two(values), answer.outputs["y"])
        return answer

    def _refuse_strangers(self, request: Any, context: grpc.ServicerContext) -> None:
        self.labels.append(request.model_spec.version_label)
        if request.model_spec.name != "a":
            name = request.model_spec.name
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({name})")


@contextmanager
def running(fake: FakeModelServer) -> Iterator[ServerAddress]:
    """Serve the fake on a free port."""
    server = grpc.server(ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", -1)])
    servicer = fake.stubs.PredictionServiceServicer()
    servicer.GetModelMetadata = fake.metadata
    servicer.Predict = fake.predict
    fake.stubs.add_PredictionServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield ServerAddress(port, 1)
    finally:
        server.stop(None).wait()


def new_fake() -> FakeModelServer:
    return FakeModelServer(import_serving_stubs())
