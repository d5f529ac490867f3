"""Monitoring over HTTP: whether and where the page for Prometheus stands, and what requests leave on it.

Source: TensorFlow Serving's contract, section 1.6. Off, which is the default, nothing here is in the way of
a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from google.protobuf import text_format

from pierhead.errors import Code, ServingError
from pierhead.modelserver.declared_messages import declare_messages
from pierhead.modelserver.http_messages import Answer, Work, finished
from pierhead.modelserver.metrics import Metrics

__all__ = ["Monitoring", "read_monitoring_config"]

DEFAULT_PATH = "/monitoring/prometheus/metrics"
MESSAGES = {
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, "PrometheusConfig")},
}


class Monitoring:
    """The page at a path, and the metrics that it shows."""

    def __init__(self, path: str = DEFAULT_PATH) -> None:
        self._path = path
        self.metrics = Metrics()

    def owns(self, target: str) -> bool:
        """Return whether a target is the page's, whatever its query."""
        return target.partition("?")[0] == self._path

    def page(self, target: str) -> Answer:
        """Return the page, to any verb; a query is refused."""
        if target != self._path:
            message = f"Unexpected path: {target}. Should be {self._path}"
            return Answer(400, message.encode(errors="surrogateescape"), "text/plain")
        return Answer(200, self.metrics.page(), "text/plain")

    def counted(self, model: str, api: str, answer: Callable[[], Answer | Work]) -> Answer | Work:
        """Return a request's outcome; it is counted when it is made and, where it succeeds, timed."""
        start = time.perf_counter()

        def count(answer: Answer) -> Answer:
            self.metrics.request_count.add(model, answer.code.name)
            if answer.code is Code.OK:
                microseconds = (time.perf_counter() - start) * 1e6
                self.metrics.request_latency.record(microseconds, model, api, "REST")
            return answer

        return finished(answer(), count)


def read_monitoring_config(file: str) -> Monitoring | None:
    """Return the monitoring that a text proto MonitoringConfig asks for, None where it asks for none.

    Raises ServingError INVALID_ARGUMENT where the file cannot be read.
    """
    if not file:
        return None
    config = declare_messages("tensorflow.serving", MESSAGES)["MonitoringConfig"]()
    try:
        text_format.Parse(Path(file).read_text(), config)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{file}'") from problem
    prometheus = config.prometheus_config
    return Monitoring(prometheus.path or DEFAULT_PATH) if prometheus.enable else None
