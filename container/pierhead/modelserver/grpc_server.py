"""The gRPC door: PredictionService and ModelService of TensorFlow Serving.

A method that is not in the tables below is answered UNIMPLEMENTED by gRPC itself. Codes and messages:
TensorFlow Serving's contract, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from pierhead.errors import ServingError, StartError
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.protobuf_codec import ProtobufCodec

__all__ = ["GrpcAddress", "GrpcServer"]

LONGEST_MESSAGE = 1024
TRUNCATED = "...TRUNCATED"
STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
Method = Callable[[Any, grpc.ServicerContext], Any]


@dataclass(frozen=True)
class GrpcAddress:
    """Where the door opens: a TCP port (0 is none) on an address, and a unix socket (empty is none)."""

    port: int
    bind_address: str = ""
    socket_path: str = ""

    def targets(self) -> list[str]:
        """Return the addresses in gRPC's notation."""
        host = self.bind_address or "0.0.0.0"
        host = f"[{host}]" if ":" in host else host
        tcp = [f"{host}:{self.port}"] if self.port else []
        return tcp + ([f"unix:{self.socket_path}"] if self.socket_path else [])


class GrpcServer:
    """Serves both services on threads of its own."""

    def __init__(self, plane: DataPlane, codec: ProtobufCodec, *, threads: int, arguments: str = "") -> None:
        self._plane = plane
        self._codec = codec
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # Without this two servers could share a port, each answering half of the calls.
            ("grpc.so_reuseport", 0),
            *_channel_arguments(arguments),
        ]
        pool = ThreadPoolExecutor(threads, thread_name_prefix="grpc")
        self._server = grpc.server(pool, handlers=self._handlers(), options=options)

    def start(self, address: GrpcAddress) -> None:
        """Open the door; raise StartError where an address cannot be had."""
        for target in address.targets():
            try:
                self._server.add_insecure_port(target)
            except RuntimeError as problem:
                raise StartError(f"UNKNOWN: the gRPC server cannot listen at {target}") from problem
        self._server.start()

    def stop(self, grace: float) -> None:
        """Take no more calls, and wait for those in flight, at most `grace` seconds."""
        self._server.stop(grace).wait()

    def predict(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Answer Predict."""
        spec = self._codec.read_spec(request)
        self._plane.find(spec)
        inputs = self._codec.read_inputs(request)
        call = self._plane.predict_call(spec, inputs, request.output_filter)
        with call.measured():
            return self._codec.prediction(self._plane.run(call, in_caller=call.is_short))

    def get_model_metadata(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Answer GetModelMetadata."""
        spec = self._codec.read_spec(request)
        self._codec.check_metadata_fields(request.metadata_field)
        return self._codec.metadata(self._plane.metadata(spec))

    def get_model_status(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Answer GetModelStatus."""
        return self._codec.status(self._plane.status(self._codec.read_spec(request)))

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        stubs = self._codec.stubs
        predict = stubs.predict.PredictRequest, stubs.predict.PredictResponse
        metadata = (
            stubs.get_model_metadata.GetModelMetadataRequest,
            stubs.get_model_metadata.GetModelMetadataResponse,
        )
        status = stubs.get_model_status.GetModelStatusRequest, stubs.get_model_status.GetModelStatusResponse
        return [
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService",
                {
                    "Predict": _unary(self.predict, *predict),
                    "GetModelMetadata": _unary(self.get_model_metadata, *metadata),
                },
            ),
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.ModelService",
                {"GetModelStatus": _unary(self.get_model_status, *status)},
            ),
        ]


def _unary(method: Method, request: Any, response: Any) -> Any:
    def answer(message: Any, context: grpc.ServicerContext) -> Any:
        with _refusals(context):
            return method(message, context)

    return grpc.unary_unary_rpc_method_handler(answer, request.FromString, response.SerializeToString)


@contextmanager
def _refusals(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except ServingError as refusal:
        context.abort(STATUS_CODES[refusal.code.value], _shortened(refusal.message))


def _shortened(message: str) -> str:
    if len(message) <= LONGEST_MESSAGE:
        return message
    return message[: LONGEST_MESSAGE - len(TRUNCATED)] + TRUNCATED


def _channel_arguments(text: str) -> list[tuple[str, str | int]]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return [(name, int(value) if value.lstrip("-").isdigit() else value) for name, _, value in pairs]
