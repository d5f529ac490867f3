"""A profiler server with answers of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from pierhead.modelserver.profiler import SERVICE

ENDLESS = b"endless"
LONGEST_WAIT_SECONDS = 30


class FakeProfiler:
    """Answers all methods but Terminate, which it refuses, and Monitor, which is missing.

    A Profile of `ENDLESS` waits until its client gives up.
    """

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.is_waiting = threading.Event()
        self.gave_up = threading.Event()
        methods = {
            "Profile": self._profile,
            "Terminate": self._terminate,
            "GetSnapshot": self._profile,
            "StartContinuousProfiling": self._profile,
            "StopContinuousProfiling": self._profile,
        }
        handlers: Any = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        service = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server = grpc.server(ThreadPoolExecutor(2), handlers=[service])

    def start(self, port: int) -> None:
        self.ports.append(port)
        self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def _profile(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        if body == ENDLESS:
            self._wait(context)
        return b"answer to " + body

    def _terminate(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such session")

    def _wait(self, context: grpc.ServicerContext) -> None:
        if not context.add_callback(self.gave_up.set):
            self.gave_up.set()
        self.is_waiting.set()
        self.gave_up.wait(LONGEST_WAIT_SECONDS)
