"""Requests that the model server's REST API answers as they are: classify and regress."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

from pierhead.errors import Code, ServingError
from pierhead.service.answers import JSON, Answer
from pierhead.service.call import Call
from pierhead.service.context import rest_path

__all__ = ["forward"]


def forward(body: bytes, call: Call) -> Answer:
    """Return the REST answer of the call's model server, whatever its status.

    Raises ServingError: DEADLINE_EXCEEDED after the call's timeout, UNAVAILABLE without an answer.
    """
    connection = HTTPConnection("127.0.0.1", call.server.rest_port, timeout=call.timeout)
    try:
        connection.request("POST", rest_path(call), body, {"Content-Type": JSON})
        response = connection.getresponse()
        return Answer(response.read(), response.getheader("Content-Type", JSON), response.status)
    except TimeoutError as problem:
        message = f"the model server did not answer within {call.timeout:g} s"
        raise ServingError(Code.DEADLINE_EXCEEDED, message) from problem
    except (OSError, HTTPException) as problem:
        raise ServingError(Code.UNAVAILABLE, f"the model server did not answer: {problem}") from problem
    finally:
        connection.close()
