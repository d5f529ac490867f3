"""The HTTP of `/models`, on a unix socket behind nginx: load, list, describe and unload.

Each request has a thread of the supervisor's, in which it waits for the table's answer. So no handler worker,
whatever its class, its user's code or its end, stands between the platform and the table.
"""

from __future__ import annotations

import json
import logging
import queue
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

from pierhead.contract.headers import REQUEST_ID, TARGET_MODEL
from pierhead.contract.status import MULTI_MODEL_STATUS
from pierhead.errors import Code, PierheadError, ServingError
from pierhead.logs import request_in_log
from pierhead.supervisor.doors import Door, QuietHandler
from pierhead.supervisor.events import Answer, LoadRequested, UnloadRequested
from pierhead.supervisor.models.publication import Publication
from pierhead.supervisor.models.requests import (
    describe_model,
    list_page,
    read_load_order,
    read_model_name,
)
from pierhead.supervisor.models.table import ModelTable

__all__ = ["MODEL_NUMBER", "ModelsDoor"]

DIRECT = "/direct/"
MODEL_NUMBER = "X-Pierhead-Model-Number"
JSON = "application/json"
# A load that was not ready in time; nothing behind a gateway, whose 504 would say so, has been waited for.
LOAD_STATUS = {**MULTI_MODEL_STATUS, Code.DEADLINE_EXCEEDED: HTTPStatus.REQUEST_TIMEOUT}
log = logging.getLogger(__name__)


class ModelsDoor(Door):
    """Answers what is asked of `/models`; `wait_seconds` bounds how long a load or unload is waited for."""

    def __init__(
        self,
        path: Path,
        table: ModelTable,
        publication: Publication,
        report: Callable[[LoadRequested | UnloadRequested], None],
        wait_seconds: float,
    ) -> None:
        super().__init__(path, _ModelsHandler, 0o666)
        self.table = table
        self.publication = publication
        self._report = report
        self._wait_seconds = wait_seconds

    def ask(self, request: Callable[[Answer], LoadRequested | UnloadRequested]) -> None:
        """Hand a request to the table and wait until it is done; raise what it was refused with."""
        answers: queue.SimpleQueue[PierheadError | None] = queue.SimpleQueue()
        self._report(request(answers.put))
        try:
            refusal = answers.get(timeout=self._wait_seconds)
        except queue.Empty as problem:
            raise ServingError(
                Code.DEADLINE_EXCEEDED, "the request is not done yet, and goes on"
            ) from problem
        if refusal is not None:
            raise refusal


class _MethodRefused(Exception):
    """A path that does not take the request's method."""


class _ModelsHandler(QuietHandler):
    server: ModelsDoor
    _body = b""

    def do_GET(self) -> None:  # noqa: N802
        if self.path.startswith(DIRECT):
            self._tell_number(self.path.removeprefix(DIRECT))
        else:
            self._answer_with(self._get)

    def do_POST(self) -> None:  # noqa: N802
        self._answer_with(self._post)

    def do_DELETE(self) -> None:  # noqa: N802
        self._answer_with(self._delete)

    def do_PUT(self) -> None:  # noqa: N802
        self._answer_with(self._refuse_method)

    do_HEAD = do_GET  # noqa: N815
    do_PATCH = do_OPTIONS = do_PUT  # noqa: N815

    def _answer_with(self, act: Callable[[], dict[str, Any]]) -> None:
        # A body that stays unread would be the next request of the connection.
        self._body = self._read_body()
        with request_in_log(self.headers.get(REQUEST_ID, "")):
            try:
                status, document = int(HTTPStatus.OK), act()
            except ServingError as refusal:
                status, document = int(LOAD_STATUS[refusal.code]), {"error": refusal.message}
            except _MethodRefused as refusal:
                status, document = int(HTTPStatus.METHOD_NOT_ALLOWED), {"error": str(refusal)}
        self.answer(status, json.dumps(document).encode(), JSON)

    @property
    def _name(self) -> str | None:
        """The model that the path names, None for `/models` itself; raises ServingError for a bad name."""
        path = self.path.partition("?")[0]
        return None if path == "/models" else read_model_name(path.removeprefix("/models/"))

    def _get(self) -> dict[str, Any]:
        name, models = self._name, self.server.table.loaded()
        if name is None:
            return list_page(models, self.path.partition("?")[2])
        if name not in models:
            raise ServingError(Code.NOT_FOUND, f"model '{name}' is not loaded")
        return describe_model(name, models[name])

    def _post(self) -> dict[str, Any]:
        if self._name is not None:
            self._refuse_method()
        order = read_load_order(self._body)
        log.info("load asked for: name=%s target_model=%r", order.name, self.headers.get(TARGET_MODEL, ""))
        self.server.ask(lambda answer: LoadRequested(order.name, order.url, answer))
        return describe_model(order.name, order.url)

    def _delete(self) -> dict[str, Any]:
        name = self._name
        if name is None:
            self._refuse_method()
        url = self.server.table.loaded().get(name, "")
        self.server.ask(lambda answer: UnloadRequested(name, answer))
        return describe_model(name, url)

    def _tell_number(self, name: str) -> None:
        """Tell nginx the folder with a model's sockets: the path by its name is too long for the system."""
        number = self.server.publication.number(name)
        self.send_response(HTTPStatus.FORBIDDEN if number is None else HTTPStatus.NO_CONTENT)
        if number is not None:
            self.send_header(MODEL_NUMBER, str(number))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _refuse_method(self) -> NoReturn:
        raise _MethodRefused(
            "POST and GET /models, GET and DELETE /models/NAME and POST /models/NAME/invoke are answered"
        )

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        return self.rfile.read(int(length)) if length.isascii() and length.isdigit() else b""
