"""gRPC's own health service, `grpc.health.v1.Health`, with the names that TensorFlow Serving registers.

The server opens its ports when every model is loaded, so what answers is healthy. A watcher is told so once,
and that it ends when the server stops; it holds no thread in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

from pierhead.errors import Code, ServingError
from pierhead.modelserver.declared_messages import declare_messages

__all__ = ["SERVICE", "HealthService"]

SERVICE = "grpc.health.v1.Health"
NAMES = ("", "ModelService", "PredictionService")
SERVING = 1
NOT_SERVING = 2
SERVICE_UNKNOWN = 3
Send = Callable[[Any], None]
MESSAGES = {
    "HealthCheckRequest": {"service": (1, "string")},
    # An enum on the wire is the int32 that it is here.
    "HealthCheckResponse": {"status": (1, "int32")},
}


class HealthService:
    """Answers for the names above."""

    def __init__(self) -> None:
        messages = declare_messages("grpc.health.v1", MESSAGES)
        self.request: Any = messages["HealthCheckRequest"]
        self.response: Any = messages["HealthCheckResponse"]
        self._lock = threading.Lock()
        self._watchers: set[Send] = set()
        self._is_stopping = False

    def check(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Answer Check; raise ServingError NOT_FOUND for a name that is not registered."""
        if request.service not in NAMES:
            raise ServingError(Code.NOT_FOUND, "service name unknown")
        return self.response(status=SERVING)

    def watch(self, request: Any, context: grpc.ServicerContext, send: Send) -> None:
        """Answer Watch by way of `send`, which takes responses, and None for the end."""
        with self._lock:
            status = SERVING if request.service in NAMES else SERVICE_UNKNOWN
            send(self.response(status=NOT_SERVING if self._is_stopping else status))
            if self._is_stopping:
                send(None)
            elif context.add_callback(lambda: self._forget(send)):
                self._watchers.add(send)

    def stop(self) -> None:
        """Tell the watchers that the server ends, and let them go."""
        with self._lock:
            self._is_stopping = True
            watchers = list(self._watchers)
        for send in watchers:
            send(self.response(status=NOT_SERVING))
            send(None)

    def _forget(self, send: Send) -> None:
        with self._lock:
            self._watchers.discard(send)
