"""The whole server: models loaded, then both ports open, until a signal asks it to end.

The event loop in the main thread serves REST; gRPC has threads of its own. Source of the order and of the
messages: TensorFlow Serving's contract, section 3.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pierhead.errors import StartError
from pierhead.modelserver.batching.recording import BatchRecorder
from pierhead.modelserver.batching.runtime import batching_platform
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.flags import ServerFlags
from pierhead.modelserver.grpc_credentials import read_credentials
from pierhead.modelserver.grpc_server import GrpcAddress, GrpcServer
from pierhead.modelserver.http_protocol import HttpServer
from pierhead.modelserver.invocations import malformed_invocation
from pierhead.modelserver.lifecycle import Lifecycle
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.model_config import ModelConfig
from pierhead.modelserver.monitoring import Monitoring, read_monitoring_config
from pierhead.modelserver.polling import Poller
from pierhead.modelserver.profiler import ProfilerService
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.reconciling import Reconciler
from pierhead.modelserver.registry import Registry, Retries
from pierhead.modelserver.rest import RestDoor
from pierhead.modelserver.runtimes.base import Platform
from pierhead.modelserver.runtimes.platform_config import read_platform_config
from pierhead.modelserver.runtimes.record_files import read_records
from pierhead.modelserver.runtimes.saved_model import SavedModelPlatform
from pierhead.modelserver.runtimes.session_options import SessionOptions, read_session_config
from pierhead.modelserver.warmup import WarmingPlatform

__all__ = ["serve"]

LOG = logging.getLogger(__name__)
GRACE_SECONDS = 20.0
STOP_SECONDS = 1.0


def serve(flags: ServerFlags, models: tuple[ModelConfig, ...]) -> None:
    """Serve models until SIGTERM or SIGINT, then finish what is in flight.

    Raises ServingError or StartError where the start fails.
    """
    monitoring = read_monitoring_config(flags.monitoring_config_file)
    metrics = monitoring.metrics if monitoring else None
    retries = Retries(max(flags.max_num_load_retries, 0), max(flags.load_retry_interval_micros, 0) / 1e6)
    registry = Registry(_platform(flags, metrics), retries)
    lifecycle = _lifecycle(flags, registry)
    # What the imports left is never visited again, so collecting what an unloaded model leaves stays cheap.
    gc.freeze()
    lifecycle.start(models)
    pollers = list(_pollers(flags, lifecycle))
    for poller in pollers:
        poller.start()
    plane = DataPlane(
        registry,
        checks_method_names=flags.enable_signature_method_name_check,
        metrics=metrics,
    )
    asyncio.run(_serve_ports(flags, plane, lifecycle, monitoring))
    for poller in pollers:
        poller.stop(STOP_SECONDS)
    lifecycle.stop(STOP_SECONDS)


def _lifecycle(flags: ServerFlags, registry: Registry) -> Lifecycle:
    reconciler = Reconciler(
        registry, load_threads=flags.num_load_threads, unload_threads=flags.num_unload_threads
    )
    return Lifecycle(registry, reconciler, any_labels=flags.allow_version_labels_for_unavailable_models)


def _pollers(flags: ServerFlags, lifecycle: Lifecycle) -> Iterator[Poller]:
    if flags.file_system_poll_wait_seconds > 0:
        yield Poller(flags.file_system_poll_wait_seconds, lifecycle.poll)
    if flags.model_config_file and flags.model_config_file_poll_wait_seconds > 0:
        reload = partial(lifecycle.reload_file, Path(flags.model_config_file))
        yield Poller(flags.model_config_file_poll_wait_seconds, reload)


def _platform(flags: ServerFlags, metrics: Metrics | None) -> Platform:
    platform = _batching_platform(flags, metrics)
    if not flags.enable_model_warmup:
        return platform
    return WarmingPlatform(platform, read_records, max(flags.num_request_iterations_for_warmup, 1), metrics)


def _batching_platform(flags: ServerFlags, metrics: Metrics | None) -> Platform:
    platform = SavedModelPlatform(_session_options(flags))
    if not flags.enable_batching:
        return platform
    file = Path(flags.batching_parameters_file) if flags.batching_parameters_file else None
    recorder = BatchRecorder(metrics) if metrics else None
    return batching_platform(
        platform, file, per_model=flags.enable_per_model_batching_parameters, recorder=recorder
    )


def _session_options(flags: ServerFlags) -> SessionOptions:
    if flags.platform_config_file:
        return read_platform_config(Path(flags.platform_config_file))
    both = flags.tensorflow_session_parallelism
    file = flags.tensorflow_session_config_file
    return SessionOptions(
        intra_op_threads=flags.tensorflow_intra_op_parallelism or both,
        inter_op_threads=flags.tensorflow_inter_op_parallelism or both,
        gpu_memory_fraction=flags.per_process_gpu_memory_fraction,
        tags=tuple(flags.saved_model_tags.split(",")),
        mixed_precision=flags.mixed_precision,
        file_config=read_session_config(Path(file)) if file else b"",
    )


async def _serve_ports(
    flags: ServerFlags, plane: DataPlane, lifecycle: Lifecycle, monitoring: Monitoring | None
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    codec = ProtobufCodec(as_content=flags.enable_serialization_as_tensor_content)
    grpc_server = _start_grpc(flags, plane, codec, lifecycle)
    threads = ThreadPoolExecutor(max(flags.rest_api_num_threads, 1), thread_name_prefix="rest")
    door = RestDoor(
        plane,
        codec,
        timeout_ms=flags.rest_api_timeout_in_ms,
        cors=flags.rest_api_enable_cors_support,
        monitoring=monitoring,
        invocations_model=flags.invocations_model,
    )
    http_server = HttpServer(door.answer, threads, malformed_invocation)
    if monitoring:
        monitoring.metrics.rest_requests_in_flight.read = lambda: http_server.requests_in_flight
    try:
        await _start_rest(flags, http_server)
        await ended.wait()
        LOG.info("stopping: what is in flight is finished first")
    finally:
        await asyncio.gather(
            http_server.stop(GRACE_SECONDS), asyncio.to_thread(grpc_server.stop, GRACE_SECONDS)
        )
        threads.shutdown(wait=False, cancel_futures=True)


def _start_grpc(
    flags: ServerFlags, plane: DataPlane, codec: ProtobufCodec, lifecycle: Lifecycle
) -> GrpcServer:
    server = GrpcServer(
        plane,
        codec,
        threads=max(flags.grpc_max_threads, 1),
        arguments=flags.grpc_channel_arguments,
        reload=lifecycle.reload_message,
        health=flags.enable_grpc_healthcheck_service,
        profiler=ProfilerService() if flags.enable_profiler else None,
    )
    address = GrpcAddress(
        flags.port,
        flags.bind_address,
        flags.grpc_socket_path,
        read_credentials(flags.ssl_config_file, use_alts=flags.use_alts_credentials),
    )
    server.start(address)
    for target in address.targets():
        LOG.info("Running gRPC ModelServer at %s ...", target)
    return server


async def _start_rest(flags: ServerFlags, server: HttpServer) -> None:
    path, port = flags.rest_api_socket_path, flags.rest_api_port
    if path:
        await _listen(server.start_file(path), path)
        LOG.info("Exporting HTTP/REST API at:unix:%s ...", path)
    if not port:
        return
    if port == flags.port:
        LOG.error("rest_api_port cannot be the same as port: the REST API is off there")
        return
    await _listen(server.start(flags.bind_address, port), f"port {port}")
    LOG.info("Exporting HTTP/REST API at:localhost:%d ...", port)


async def _listen(start: Awaitable[None], place: str) -> None:
    try:
        await start
    except OSError as problem:
        reason = f"UNKNOWN: the REST API cannot listen at {place}: {problem.strerror or problem}"
        raise StartError(reason) from problem
