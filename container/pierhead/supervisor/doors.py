"""The supervisor's unix sockets: for the reports of other programs, for /ping, and for /metrics.

The answer to /ping is the supervisor's own view of all processes. Neither a busy handler worker nor a long
run of a model can delay it, and a process that has died is known here within milliseconds.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import socketserver
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pierhead import control
from pierhead.errors import ControlError
from pierhead.prometheus_text import CONTENT_TYPE
from pierhead.supervisor.events import FromWorker

__all__ = ["ControlDoor", "Door", "HealthDoor", "MetricsDoor", "QuietHandler"]

IDLE_SECONDS = 75
POLL_SECONDS = 0.05
log = logging.getLogger(__name__)


class Door(socketserver.ThreadingUnixStreamServer):
    """A unix socket served by threads that end with the process."""

    daemon_threads = True
    # As long as that of the public port: nginx says 502 at once where it is full.
    request_queue_size = 1024

    def __init__(self, path: Path, handler: type[socketserver.BaseRequestHandler], mode: int) -> None:
        path.unlink(missing_ok=True)
        super().__init__(str(path), handler)
        self._path = path
        path.chmod(mode)

    def open(self) -> None:
        """Start to answer."""
        threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), daemon=True).start()

    def handle_error(self, *_: Any) -> None:
        """Log a peer that broke off in a word; the base class prints a traceback."""
        log.debug("a peer broke off: %s", sys.exception())

    def close(self) -> None:
        """Stop to answer and remove the socket."""
        self.shutdown()
        self.server_close()
        self._path.unlink(missing_ok=True)


class ControlDoor(Door):
    """Takes the messages of handler workers, one line each, and answers `Accepted`."""

    def __init__(self, path: Path, report: Callable[[FromWorker], None]) -> None:
        super().__init__(path, _ControlHandler, 0o600)
        self.report = report


class HealthDoor(Door):
    """Answers GET /ping: 200 with an empty body, or 503 with what is not ready."""

    def __init__(self, path: Path, not_ready: Callable[[], str]) -> None:
        super().__init__(path, _HealthHandler, 0o666)
        self.not_ready = not_ready


class MetricsDoor(Door):
    """Answers GET /metrics with a page, which may take a while: a socket of its own keeps that off /ping."""

    def __init__(self, path: Path, page: Callable[[], bytes]) -> None:
        super().__init__(path, _MetricsHandler, 0o666)
        self.page = page


class _ControlHandler(socketserver.StreamRequestHandler):
    server: ControlDoor
    timeout = control.ANSWER_SECONDS

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            line = self.rfile.readline(control.LONGEST_MESSAGE)
            try:
                self.server.report(FromWorker(control.decode(line)))
            except ControlError as problem:
                log.warning("%s", problem)
                return
            self.wfile.write(control.encode(control.Accepted()))


class QuietHandler(http.server.BaseHTTPRequestHandler):
    """Answers nginx, and logs nothing."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def answer(self, status: int, body: bytes, content_type: str) -> None:
        """Send the answer; without a body it has no type."""
        self.send_response(status)
        if body:
            self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, _explain: str | None = None) -> None:
        """Refuse what is no request, or has a method that nobody knows, as JSON; nothing more is read."""
        self.close_connection = True
        sentence = message or http.HTTPStatus(code).phrase
        self.answer(code, json.dumps({"error": sentence}).encode(), "application/json")

    def address_string(self) -> str:
        """Return a name for a peer that has no address."""
        return "nginx"

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _HealthHandler(QuietHandler):
    server: HealthDoor

    def do_GET(self) -> None:
        reason = self.server.not_ready()
        body = json.dumps({"error": f"not ready: {reason}"}).encode() if reason else b""
        self.answer(503 if reason else 200, body, "application/json")

    do_HEAD = do_GET  # noqa: N815


class _MetricsHandler(QuietHandler):
    server: MetricsDoor

    def do_GET(self) -> None:
        self.answer(200, self.server.page(), CONTENT_TYPE)

    do_HEAD = do_GET  # noqa: N815
