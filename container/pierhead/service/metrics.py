"""What a handler worker counts and times: its requests, the user's hooks, and its calls of model servers.

prometheus_client keeps the values in files, and the supervisor reads them. It takes their folder from
PROMETHEUS_MULTIPROC_DIR, which the supervisor sets before a worker is started.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
from prometheus_client import Counter, Gauge, Histogram
from werkzeug.wsgi import ClosingIterator

from pierhead.control import ServerAddress
from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature
from pierhead.prometheus_text import Metric
from pierhead.service.backend import Backend, Prediction, RestAnswer
from pierhead.service.call import Call
from pierhead.service.hooks import Hooks

__all__ = ["METRICS", "TimedBackend", "WorkerMetrics"]

LIMITS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
REQUESTS = Metric(
    "pierhead_handler_requests_total", "counter", "Requests that handler workers answered.", ("status",)
)
SECONDS = Metric(
    "pierhead_handler_request_duration_seconds",
    "histogram",
    "From a request's arrival at its worker to the end of its answer, a streamed one too.",
)
IN_FLIGHT = Metric(
    "pierhead_handler_requests_in_flight", "gauge", "Requests that handler workers are working on."
)
HOOK_SECONDS = Metric(
    "pierhead_hook_duration_seconds",
    "histogram",
    "The time of a hook's call; of one that streams, until it returned its iterator.",
    ("hook",),
)
HOOK_FAILURES = Metric("pierhead_hook_failures_total", "counter", "Hooks' calls that raised.", ("hook",))
CALL_SECONDS = Metric(
    "pierhead_model_call_duration_seconds",
    "histogram",
    "A worker's call of a model server, with the making and reading of its messages.",
    ("protocol",),
)
CALLS = Metric(
    "pierhead_model_calls_total",
    "counter",
    "Workers' calls of model servers by gRPC's code, or OK for any answer over REST.",
    ("protocol", "code"),
)
METRICS = (REQUESTS, SECONDS, IN_FLIGHT, HOOK_SECONDS, HOOK_FAILURES, CALL_SECONDS, CALLS)
NOT_ANSWERED = "504"
GRPC, REST = "grpc", "rest"
App = Callable[..., Iterable[bytes]]


class WorkerMetrics:
    """The metrics of one worker process."""

    def __init__(self) -> None:
        self.requests = _counter(REQUESTS)
        self.seconds = _histogram(SECONDS)
        self.in_flight = Gauge(IN_FLIGHT.name, IN_FLIGHT.sentence, multiprocess_mode="livesum", registry=None)
        self.hook_seconds = _histogram(HOOK_SECONDS)
        self.hook_failures = _counter(HOOK_FAILURES)
        self.call_seconds = _histogram(CALL_SECONDS)
        self.calls = _counter(CALLS)

    def counted_app(self, app: App) -> App:
        """Return a WSGI app that counts its requests; a request is over when its answer is closed."""

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            request = CountedRequest(self, start_response)
            body = None
            try:
                body = app(environ, request.start_response)
            finally:
                # The worker may end a request that takes too long, by an exception that no app expects.
                if body is None:
                    request.finish()
            return ClosingIterator(body, request.finish)

        return answer

    def timed_hooks(self, hooks: Hooks) -> Hooks:
        """Return hooks that are timed."""
        return hooks.wrapped(self._timed_hook)

    @contextmanager
    def timed_call(self, protocol: str) -> Iterator[None]:
        """Time and count a call of a model server."""
        start, code = time.perf_counter(), Code.UNKNOWN
        try:
            yield
            code = Code.OK
        except ServingError as problem:
            code = problem.code
            raise
        finally:
            self.calls.labels(protocol, code.name).inc()
            self.call_seconds.labels(protocol).observe(time.perf_counter() - start)

    def _timed_hook(self, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        seconds, failures = self.hook_seconds.labels(name), self.hook_failures.labels(name)

        @functools.wraps(hook)
        def timed(*values: Any) -> Any:
            start = time.perf_counter()
            try:
                return hook(*values)
            except Exception:
                failures.inc()
                raise
            finally:
                seconds.observe(time.perf_counter() - start)

        return timed


class CountedRequest:
    """One request, from its arrival to the end of its answer."""

    def __init__(self, metrics: WorkerMetrics, start_response: Callable[..., Any]) -> None:
        self._metrics = metrics
        self._start_response = start_response
        self._status = NOT_ANSWERED
        self._is_over = False
        self._start = time.perf_counter()
        metrics.in_flight.inc()

    def start_response(self, status: str, *values: Any) -> Any:
        """Note the status, and begin the answer."""
        self._status = status[:3]
        return self._start_response(status, *values)

    def finish(self) -> None:
        """Count the request, once."""
        if not self._is_over:
            self._is_over = True
            self._metrics.in_flight.dec()
            self._metrics.requests.labels(self._status).inc()
            self._metrics.seconds.observe(time.perf_counter() - self._start)


class TimedBackend:
    """A `Backend` whose calls are timed."""

    def __init__(self, backend: Backend, metrics: WorkerMetrics) -> None:
        self._metrics = metrics
        self.next_server: Callable[[], ServerAddress] = backend.next_server
        self.served_version: Callable[[str, int | None], int | None] = backend.served_version
        self.channel: Callable[[ServerAddress], grpc.Channel] = backend.channel
        self.tells_signatures: Callable[[Call], bool] = backend.tells_signatures
        self.signature: Callable[[Call, str], Signature] = backend.signature
        self._backend = backend

    def predict(self, call: Call, signature_name: str, inputs: Mapping[str, Array]) -> Prediction:
        """Run the model over gRPC."""
        with self._metrics.timed_call(GRPC):
            return self._backend.predict(call, signature_name, inputs)

    def forward(self, call: Call, body: bytes) -> RestAnswer:
        """Ask the model server's REST API."""
        with self._metrics.timed_call(REST):
            return self._backend.forward(call, body)


def _counter(metric: Metric) -> Counter:
    return Counter(metric.name, metric.sentence, metric.labels, registry=None)


def _histogram(metric: Metric) -> Histogram:
    return Histogram(metric.name, metric.sentence, metric.labels, registry=None, buckets=LIMITS)
