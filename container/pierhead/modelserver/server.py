"""The whole server: models loaded, then both ports open, until a signal asks it to end.

The event loop in the main thread serves REST; gRPC has threads of its own. Source of the order and of the
messages: TensorFlow Serving's contract, section 3.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from concurrent.futures import ThreadPoolExecutor

from pierhead.errors import StartError
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.flags import ServerFlags
from pierhead.modelserver.grpc_server import GrpcAddress, GrpcServer
from pierhead.modelserver.http_protocol import HttpServer
from pierhead.modelserver.loading import load_models
from pierhead.modelserver.model_config import ModelConfig
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries
from pierhead.modelserver.rest import RestDoor
from pierhead.modelserver.runtimes.saved_model import SavedModelPlatform, SessionOptions

__all__ = ["serve"]

LOG = logging.getLogger(__name__)
GRACE_SECONDS = 20.0


def serve(flags: ServerFlags, models: tuple[ModelConfig, ...]) -> None:
    """Serve models until SIGTERM or SIGINT, then finish what is in flight.

    Raises ServingError or StartError where the start fails.
    """
    retries = Retries(max(flags.max_num_load_retries, 0), max(flags.load_retry_interval_micros, 0) / 1e6)
    registry = Registry(SavedModelPlatform(_session_options(flags)), retries)
    load_models(registry, models)
    asyncio.run(_serve_ports(flags, DataPlane(registry)))
    registry.unload_all()


def _session_options(flags: ServerFlags) -> SessionOptions:
    both = flags.tensorflow_session_parallelism
    return SessionOptions(
        intra_op_threads=flags.tensorflow_intra_op_parallelism or both,
        inter_op_threads=flags.tensorflow_inter_op_parallelism or both,
        gpu_memory_fraction=flags.per_process_gpu_memory_fraction,
        tags=tuple(flags.saved_model_tags.split(",")),
    )


async def _serve_ports(flags: ServerFlags, plane: DataPlane) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    codec = ProtobufCodec(as_content=flags.enable_serialization_as_tensor_content)
    grpc_server = _start_grpc(flags, plane, codec)
    threads = ThreadPoolExecutor(max(flags.rest_api_num_threads, 1), thread_name_prefix="rest")
    door = RestDoor(
        plane, codec, timeout_ms=flags.rest_api_timeout_in_ms, cors=flags.rest_api_enable_cors_support
    )
    http_server = HttpServer(door.answer, threads)
    try:
        await _start_rest(flags, http_server)
        await ended.wait()
        LOG.info("stopping: what is in flight is finished first")
    finally:
        await asyncio.gather(
            http_server.stop(GRACE_SECONDS), asyncio.to_thread(grpc_server.stop, GRACE_SECONDS)
        )
        threads.shutdown(wait=False, cancel_futures=True)


def _start_grpc(flags: ServerFlags, plane: DataPlane, codec: ProtobufCodec) -> GrpcServer:
    server = GrpcServer(
        plane, codec, threads=max(flags.grpc_max_threads, 1), arguments=flags.grpc_channel_arguments
    )
    address = GrpcAddress(flags.port, flags.bind_address, flags.grpc_socket_path)
    server.start(address)
    for target in address.targets():
        LOG.info("Running gRPC ModelServer at %s ...", target)
    return server


async def _start_rest(flags: ServerFlags, server: HttpServer) -> None:
    if not flags.rest_api_port:
        return
    if flags.rest_api_port == flags.port:
        LOG.error("rest_api_port cannot be the same as port: the REST API is off")
        return
    try:
        await server.start(flags.bind_address, flags.rest_api_port)
    except OSError as problem:
        reason = f"UNKNOWN: the REST API cannot listen at port {flags.rest_api_port}: {problem.strerror}"
        raise StartError(reason) from problem
    LOG.info("Exporting HTTP/REST API at:localhost:%d ...", flags.rest_api_port)
