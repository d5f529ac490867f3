"""The gRPC door: PredictionService and ModelService of TensorFlow Serving.

A method that is not in the tables below is answered UNIMPLEMENTED by gRPC itself. Methods that only tell
something have threads of their own, and so never wait behind runs. A call that its client gave up while it
waited for a thread is dropped: gRPC reads a request only once a thread has it. Codes and messages: TensorFlow
Serving's contract, section 4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pierhead.contract.headers import REQUEST_ID
from pierhead.errors import Code, ServingError, StartError
from pierhead.logs import request_in_log
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.exhaustion import NO_MEMORY
from pierhead.modelserver.health import SERVICE, HealthService
from pierhead.modelserver.prediction_service import Method, PredictionService, counted
from pierhead.modelserver.profiler import ProfilerService
from pierhead.modelserver.protobuf_codec import ProtobufCodec

__all__ = ["GrpcAddress", "GrpcServer"]

LOG = logging.getLogger(__name__)
METADATA_KEY = REQUEST_ID.lower()
FAILURE = "the model server failed; its log says why"
LONGEST_MESSAGE = 1024
TRUNCATED = "...TRUNCATED"
TELLING_THREADS = 4
STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
# Replaces the configured models by those of a ModelServerConfig message; raises ServingError.
Reload = Callable[[Any], None]


@dataclass(frozen=True)
class GrpcAddress:
    """Where the door opens: a TCP port (0 is none) on an address, and a unix socket (empty is none).

    With credentials (gRPC's own object) both speak TLS.
    """

    port: int
    bind_address: str = ""
    socket_path: str = ""
    credentials: grpc.ServerCredentials | None = None

    def targets(self) -> list[str]:
        """Return the addresses in gRPC's notation."""
        host = self.bind_address or "0.0.0.0"
        host = f"[{host}]" if ":" in host else host
        tcp = [f"{host}:{self.port}"] if self.port else []
        return tcp + ([f"unix:{self.socket_path}"] if self.socket_path else [])


class GrpcServer:
    """Serves both services on threads of its own, with `health` gRPC's health service, and a profiler's."""

    def __init__(
        self,
        plane: DataPlane,
        codec: ProtobufCodec,
        *,
        threads: int,
        arguments: str = "",
        reload: Reload | None = None,
        health: bool = False,
        profiler: ProfilerService | None = None,
    ) -> None:
        self._reload = reload
        self._plane = plane
        self._codec = codec
        self._prediction = PredictionService(plane, codec)
        self._health = HealthService() if health else None
        self._profiler = profiler
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # Without this two servers could share a port, each answering half of the calls.
            ("grpc.so_reuseport", 0),
            *_channel_arguments(arguments),
        ]
        self._telling = ThreadPoolExecutor(TELLING_THREADS, thread_name_prefix="grpc-telling")
        pool = ThreadPoolExecutor(threads, thread_name_prefix="grpc")
        self._server = grpc.server(pool, handlers=self._handlers(), options=options)

    def start(self, address: GrpcAddress) -> None:
        """Open the door; raise StartError where an address cannot be had."""
        for target in address.targets():
            try:
                if address.credentials:
                    self._server.add_secure_port(target, address.credentials)
                else:
                    self._server.add_insecure_port(target)
            except RuntimeError as problem:
                raise StartError(f"UNKNOWN: the gRPC server cannot listen at {target}") from problem
        self._server.start()

    def stop(self, grace: float) -> None:
        """Take no more calls, and wait for those in flight, at most `grace` seconds."""
        if self._health:
            self._health.stop()
        self._server.stop(grace).wait()
        if self._profiler:
            self._profiler.stop()

    def get_model_status(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Answer GetModelStatus."""
        return self._codec.status(self._plane.status(self._codec.read_spec(request)))

    def handle_reload_config(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Answer HandleReloadConfigRequest, once the new models are available."""
        if self._reload is None:
            raise ServingError(Code.UNIMPLEMENTED, "this server's models cannot be changed")
        before = self._counts(request.metric_names)
        self._reload(request.config)
        response = self._codec.stubs.model_management.ReloadConfigResponse()
        response.status.SetInParent()
        for name, count in self._counts(request.metric_names).items():
            response.metric.add(name=name, int64_value_increase=count - before[name])
        return response

    def _counts(self, names: Iterable[str]) -> dict[str, int]:
        """Return the count of each counter; 0 where there is none, and without monitoring."""
        metrics = self._plane.metrics
        return {name: metrics.count(name) if metrics else 0 for name in names}

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        stubs = self._codec.stubs
        status = stubs.get_model_status.GetModelStatusRequest, stubs.get_model_status.GetModelStatusResponse
        management = stubs.model_management
        reload = management.ReloadConfigRequest, management.ReloadConfigResponse
        return [
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService", self._prediction_handlers()
            ),
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.ModelService",
                {
                    "GetModelStatus": _unary(self.get_model_status, *status, pool=self._telling),
                    "HandleReloadConfigRequest": _unary(self.handle_reload_config, *reload),
                },
            ),
            *self._health_handlers(),
            *([self._profiler.handler()] if self._profiler else []),
        ]

    def _prediction_handlers(self) -> dict[str, Any]:
        stubs, service = self._codec.stubs, self._prediction
        predict, classify, regress = (
            counted(self._plane.metrics, api, method) if self._plane.metrics else method
            for api, method in (
                ("Predict", service.predict),
                ("Classify", service.classify),
                ("Regress", service.regress),
            )
        )
        classification, regression = stubs.classification, stubs.regression
        multi = stubs.inference.MultiInferenceRequest, stubs.inference.MultiInferenceResponse
        metadata = (
            stubs.get_model_metadata.GetModelMetadataRequest,
            stubs.get_model_metadata.GetModelMetadataResponse,
        )
        return {
            "Predict": _unary(predict, stubs.predict.PredictRequest, stubs.predict.PredictResponse),
            "Classify": _unary(
                classify, classification.ClassificationRequest, classification.ClassificationResponse
            ),
            "Regress": _unary(regress, regression.RegressionRequest, regression.RegressionResponse),
            "MultiInference": _unary(service.multi_inference, *multi),
            "GetModelMetadata": _unary(service.get_model_metadata, *metadata, pool=self._telling),
        }

    def _health_handlers(self) -> list[grpc.GenericRpcHandler]:
        health = self._health
        if health is None:
            return []
        check = _unary(health.check, health.request, health.response, pool=self._telling)
        watch = _stream(health.watch, health.request, health.response, pool=self._telling)
        return [grpc.method_handlers_generic_handler(SERVICE, {"Check": check, "Watch": watch})]


def _unary(method: Method, request: Any, response: Any, *, pool: ThreadPoolExecutor | None = None) -> Any:
    """Return the handler of a method; it runs in `pool`, or else in the server's threads."""

    def answer(body: bytes, context: grpc.ServicerContext) -> Any:
        with _refusals(context):
            return method(_parsed(body, request), context)

    if pool:
        # gRPC looks for a pool of a method's own here.
        answer.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return grpc.unary_unary_rpc_method_handler(answer, None, response.SerializeToString)


def _stream(method: Any, request: Any, response: Any, *, pool: ThreadPoolExecutor) -> Any:
    """Return the handler of a method that answers by a callback, and between answers holds no thread."""

    def answer(body: bytes, context: grpc.ServicerContext, send: Callable[[Any], None]) -> None:
        with _refusals(context):
            method(_parsed(body, request), context, send)

    answer.experimental_thread_pool = pool  # type: ignore[attr-defined]
    answer.experimental_non_blocking = True  # type: ignore[attr-defined]
    return grpc.unary_stream_rpc_method_handler(answer, None, response.SerializeToString)


def _parsed(body: bytes, request: Any) -> Any:
    """Return the message; gRPC itself would write a traceback into the log for each that does not parse."""
    try:
        return request.FromString(body)
    except DecodeError as problem:
        raise ServingError(Code.INTERNAL, "the request is no message of this method") from problem


@contextmanager
def _refusals(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except ServingError as refusal:
        context.abort(STATUS_CODES[refusal.code.value], _shortened(refusal.message))
    except MemoryError:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, NO_MEMORY)
    except Exception:
        # gRPC itself would tell the client of the exception.
        with request_in_log(_request_id(context)):
            LOG.exception("a call could not be answered")
        context.abort(grpc.StatusCode.INTERNAL, FAILURE)


def _request_id(context: grpc.ServicerContext) -> str:
    """Return the id that the caller gave the request, if any."""
    return next((str(value) for key, value in context.invocation_metadata() if key == METADATA_KEY), "")


def _shortened(message: str) -> str:
    if len(message) <= LONGEST_MESSAGE:
        return message
    return message[: LONGEST_MESSAGE - len(TRUNCATED)] + TRUNCATED


def _channel_arguments(text: str) -> list[tuple[str, str | int]]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return [(name, int(value) if value.lstrip("-").isdigit() else value) for name, _, value in pairs]
