"""What the workers of every class have in common, whatever runs their requests.

Errors of gunicorn's own are JSON. A worker knows its requests in flight, so that one which holds up all
others beyond the limit gets an answer and is ended alone. A worker that is to go asks for a successor and
serves on until that one is ready.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from types import FrameType, MappingProxyType
from typing import Any

from gunicorn import util
from gunicorn.http.errors import (
    ExpectationFailed,
    ForbiddenProxyRequest,
    LimitRequestHeaders,
    LimitRequestLine,
    NoMoreData,
    ParseException,
    UnsupportedTransferCoding,
)

from pierhead.contract.headers import REQUEST_ID_KEY
from pierhead.errors import RequestEnded
from pierhead.service.workers.stages import SharedStage, Stage

__all__ = ["HandlerWorker"]

log = logging.getLogger(__name__)

DRAINED_AT_ONCE = 1 << 20
STATUSES: Mapping[type[Exception], HTTPStatus] = MappingProxyType(
    {
        LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
        LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        UnsupportedTransferCoding: HTTPStatus.NOT_IMPLEMENTED,
        ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
        ForbiddenProxyRequest: HTTPStatus.FORBIDDEN,
        ParseException: HTTPStatus.BAD_REQUEST,
    }
)
SENTENCES: Mapping[HTTPStatus, str] = MappingProxyType(
    {
        HTTPStatus.BAD_REQUEST: "the request is not valid HTTP",
        HTTPStatus.INTERNAL_SERVER_ERROR: "the request failed; the log says why",
    }
)
StartResponse = Callable[..., Any]


class HandlerWorker:
    """To be inherited before one of gunicorn's worker classes."""

    # gunicorn's Worker has these.
    notify: Callable[[], None]
    handle_exit: Callable[[int, FrameType | None], None]
    app: Any
    cfg: Any
    log: Any
    nr: int
    max_requests: int
    pid: int
    ppid: int
    wsgi: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stage = SharedStage()
        self.death = 0
        # gunicorn would end the worker at once.
        self._most_requests, self.max_requests = self.max_requests, sys.maxsize
        self._in_flight: dict[int, dict[str, Any]] = {}

    def init_process(self) -> None:
        """Run the worker, from the fork to its end."""
        self._end_at_once_when_told()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        super().init_process()  # type: ignore[misc]

    def init_signals(self) -> None:
        """Set gunicorn's handlers, but for SIGTERM: until requests come there is nothing to finish."""
        super().init_signals()  # type: ignore[misc]
        self._end_at_once_when_told()

    def _end_at_once_when_told(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def load_wsgi(self) -> None:
        """Load the app, and note for each of its requests who works on it."""
        super().load_wsgi()  # type: ignore[misc]
        app = self.wsgi

        def call_app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            environ["pierhead.start_response"] = start_response
            environ["pierhead.since"] = time.monotonic()
            self._in_flight[threading.get_ident()] = environ
            answer: Iterable[bytes] = app(environ, start_response)
            return answer

        self.wsgi = call_app

    def become_ready(self) -> None:
        """Tell the master that requests are taken; from now on they are finished before the end."""
        signal.signal(signal.SIGTERM, self.handle_exit)
        signal.siginterrupt(signal.SIGTERM, False)
        self.stage.move_to(Stage.READY)
        self._wake_master()

    def end_request(self, request: Any) -> None:
        """Forget a request that has been answered; read what its app left unread.

        nginx would take the end of the connection, while it still sends, for a failure.
        """
        self._in_flight.pop(threading.get_ident(), None)
        _drain(request)
        if self.nr >= self._most_requests:
            self.retire("it has had its number of requests")

    def stuck_requests(self) -> int:
        """Return how many requests have no answer begun after all the time that a request has."""
        since = time.monotonic() - self.app.request_seconds
        return sum(
            environ["pierhead.since"] < since and not _response(environ).headers_sent
            for environ in list(self._in_flight.values())
        )

    def retire(self, reason: str) -> None:
        """Ask for a successor; requests are taken until that one is ready."""
        if self.stage.move_to(Stage.RETIRING):
            log.info("worker %s is replaced: %s", self.pid, reason)
            # Its last requests may take as long as any.
            self.cfg.set("graceful_timeout", self.app.request_seconds)
            self._wake_master()

    def handle_abort(self, _number: int, frame: FrameType | None) -> None:
        """End the request that has kept this worker from giving a sign of life, and it alone.

        The master sends SIGABRT after the worker's timeout. Python calls this in the main thread, on top of
        whatever runs: in the classes gevent and sync that is the request at fault.
        """
        environ = self._in_flight.get(threading.get_ident())
        if environ is not None and "pierhead.ended" in environ:
            # The request went on in spite of it. Without a sign of life the master sends SIGKILL.
            return
        # Or the master would do so before the event loop's next turn.
        self.notify()
        seconds = self.app.silent_seconds
        self.retire(f"it gave no sign of life for {seconds} s (SAGEMAKER_GUNICORN_TIMEOUT_SECONDS)")
        if environ is None:
            return
        log.error(
            "request ended: request=%s has held its worker for more than %s s "
            "(SAGEMAKER_GUNICORN_TIMEOUT_SECONDS); it was at %s",
            environ.get(REQUEST_ID_KEY, "-"),
            seconds,
            _describe_place(frame),
        )
        environ["pierhead.ended"] = True
        response = _response(environ)
        if not response.headers_sent:
            sentence = f"no answer within {seconds} s (SAGEMAKER_GUNICORN_TIMEOUT_SECONDS)"
            _write_error(response.sock, HTTPStatus.GATEWAY_TIMEOUT, sentence)
        raise RequestEnded

    def handle_error(self, request: Any, client: Any, _address: Any, problem: BaseException) -> None:
        """Answer what never reached the app, or broke off in it, as JSON."""
        if isinstance(problem, RequestEnded):
            return
        kinds = (status for kind, status in STATUSES.items() if isinstance(problem, kind))
        status = next(kinds, HTTPStatus.INTERNAL_SERVER_ERROR)
        if status is HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("request failed: path=%s", getattr(request, "path", "-"), exc_info=problem)
        else:
            log.warning("request refused: %s", problem)
        _write_error(client, status, SENTENCES.get(status, status.phrase))

    def _wake_master(self) -> None:
        """Have the master look after its workers now; it does so at the signal of any child."""
        os.kill(self.ppid, signal.SIGCHLD)


def _response(environ: Mapping[str, Any]) -> Any:
    """Return gunicorn's response, whose method `start_response` is."""
    return environ["pierhead.start_response"].__self__


def _drain(request: Any) -> None:
    try:
        while request.body is not None and request.body.read(DRAINED_AT_ONCE):
            pass
    except (OSError, NoMoreData, ParseException) as problem:
        log.debug("the rest of a body was not read: %s", problem)


def _write_error(client: Any, status: HTTPStatus, sentence: str) -> None:
    body = b'{"error": "%s"}' % sentence.encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        util.write_nonblock(client, head.encode() + body)
    except OSError as problem:
        log.debug("an error was not sent: %s", problem)


def _describe_place(frame: FrameType | None) -> str:
    return "-" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
