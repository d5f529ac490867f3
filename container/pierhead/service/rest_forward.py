"""Requests that go to the model server's REST API as JSON, and its answers as they come.

That is how classify and regress are asked for, and predict where the model server tells no signatures to make
tensors by.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException

from pierhead.contract.headers import REQUEST_ID
from pierhead.control import ServerAddress
from pierhead.errors import Code, ModelServerAway, ServingError
from pierhead.logs import current_request_id
from pierhead.service.backend import RestAnswer
from pierhead.service.call import Call
from pierhead.service.context import rest_path

__all__ = ["forward"]

JSON = "application/json"
log = logging.getLogger(__name__)


def forward(body: bytes, call: Call, others: Sequence[ServerAddress] = ()) -> RestAnswer:
    """Return the REST answer of the call's model server, whatever its status.

    Where its connection is refused, the others are tried. Raises ServingError (DEADLINE_EXCEEDED) after
    the call's timeout, ModelServerAway without an answer.
    """
    for server in (call.server, *others):
        try:
            return _post(body, call, server.rest_port)
        except ConnectionRefusedError:
            continue
        except TimeoutError as problem:
            message = f"the model server did not answer within {call.timeout:g} s"
            raise ServingError(Code.DEADLINE_EXCEEDED, message) from problem
        except (OSError, HTTPException) as problem:
            log.warning("the model server broke off: port=%s %r", server.rest_port, problem)
            raise ModelServerAway from problem
    raise ModelServerAway


def _headers() -> dict[str, str]:
    request_id = current_request_id()
    return {"Content-Type": JSON} | ({REQUEST_ID: request_id} if request_id else {})


def _post(body: bytes, call: Call, port: int) -> RestAnswer:
    connection = HTTPConnection("127.0.0.1", port, timeout=call.timeout)
    try:
        connection.request("POST", rest_path(call), body, _headers())
        response = connection.getresponse()
        return RestAnswer(response.status, response.getheader("Content-Type", JSON), response.read())
    finally:
        connection.close()
