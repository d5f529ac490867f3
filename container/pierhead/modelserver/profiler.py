"""The profiler's gRPC service, `tensorflow.ProfilerService`, passed on to TensorFlow's own profiler server.

That server speaks gRPC by itself and cannot share a port with Python's. It is started in this process at the
first call, on a free port, and listens at all addresses: it takes no address. Messages pass as bytes.
"""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc

__all__ = ["METHODS", "SERVICE", "ProfilerService", "start_profiler_server"]

SERVICE = "tensorflow.ProfilerService"
METHODS = (
    "Profile",
    "Terminate",
    "Monitor",
    "StartContinuousProfiling",
    "StopContinuousProfiling",
    "GetSnapshot",
)
# A call may last as long as it profiles, and must keep neither runs nor `Terminate` waiting.
THREADS = 4
# A call without a deadline has so many seconds left that gRPC, told to wait so long, would not wait at all.
LONGEST_SECONDS = 365 * 24 * 3600.0
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Without this a proxy named in the environment would be asked for the loopback address.
    ("grpc.enable_http_proxy", 0),
]
# Starts a profiler server that listens at a port once the function has returned.
Start = Callable[[int], None]


def start_profiler_server(port: int) -> None:
    """Start TensorFlow's profiler server in this process, for good."""
    importlib.import_module("tensorflow").profiler.experimental.server.start(port)


class ProfilerService:
    """Passes each method's calls on; deadlines, cancellations and refusals pass too."""

    def __init__(self, start: Start = start_profiler_server) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="grpc-profiler")

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of the whole service."""
        return grpc.method_handlers_generic_handler(SERVICE, {name: self._method(name) for name in METHODS})

    def stop(self) -> None:
        """Close the connection to the profiler server, when no call is in flight any more."""
        with self._lock:
            if self._channel:
                self._channel.close()

    def _method(self, name: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        answer = partial(self._pass_on, f"/{SERVICE}/{name}")
        # gRPC looks for a pool of a method's own here.
        answer.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        return grpc.unary_unary_rpc_method_handler(answer)

    def _pass_on(self, path: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        method: Any = self._connected().unary_unary(path)
        call = method.future(body, timeout=min(context.time_remaining(), LONGEST_SECONDS))
        if not context.add_callback(call.cancel):
            call.cancel()
        if call.code() is not grpc.StatusCode.OK:
            context.abort(call.code(), call.details() or "")
        answer: bytes = call.result()
        return answer

    def _connected(self) -> grpc.Channel:
        with self._lock:
            if self._channel is None:
                port = self._start_at_free_port()
                self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
            return self._channel

    def _start_at_free_port(self) -> int:
        """Return the port, which is held until the server has it, by way of gRPC's sharing of ports."""
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind(("", 0))
            port: int = holder.getsockname()[1]
            self._start(port)
            return port
