"""The status that a hook chose for its request, by our exception or by one of another library.

A gRPC call's error is the answer of whatever was called, and keeps its status. werkzeug's HTTPException is
what `flask.abort` raises; the SageMaker inference toolkit's exceptions are known by their attributes, because
that toolkit need not be installed.
"""

from __future__ import annotations

from typing import Any

import grpc
from werkzeug.exceptions import HTTPException

from pierhead.contract.status import HTTP_STATUS
from pierhead.errors import Code, UserCodeError

__all__ = ["HookError", "describe_exception", "translate_exception"]

LOWEST, HIGHEST = 400, 599
TOOLKIT_ATTRIBUTES = ("status_code", "message", "phrase")
UNREACHABLE = "a server that the hook called cannot be reached; the log says which"


class HookError(UserCodeError):
    """Raise it in a hook to answer `{"error": message}` with a status from 400 to 599.

    Below 500 it is the caller's affair and leaves nothing in the log; from 500 on its traceback is logged.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        if not _is_error_status(status):
            raise ValueError(f"HookError's status must be a whole number from 400 to 599, not {status!r}")
        super().__init__(message)
        self.status = status


def translate_exception(problem: BaseException) -> UserCodeError:
    """Return the error that stands for an exception of the user's code: with a status where it has one."""
    status, message = _chosen(problem)
    if _is_error_status(status):
        return HookError(message, status)
    return UserCodeError(describe_exception(problem))


def describe_exception(problem: BaseException) -> str:
    """Return the exception's message, or its type's name where the message alone says nothing."""
    name = type(problem).__name__
    if isinstance(problem, KeyError) and problem.args:
        return f"KeyError: {problem.args[0]!r}"
    return f"{name}: {problem}" if isinstance(problem, SystemExit) else str(problem) or name


def _chosen(problem: Any) -> tuple[Any, str]:
    """Return the status that an exception carries, None without one, and its message."""
    if isinstance(problem, grpc.RpcError) and hasattr(problem, "code"):
        return _of_call(problem)
    # A header that is missing from `request_headers` is a KeyError and an HTTPException at once.
    if isinstance(problem, HTTPException) and not isinstance(problem, KeyError):
        return _of_http_exception(problem)
    if all(hasattr(problem, name) for name in TOOLKIT_ATTRIBUTES):
        return problem.status_code, str(problem.message) or describe_exception(problem)
    return None, ""


def _of_call(problem: Any) -> tuple[int, str]:
    code = Code(problem.code().value[0])
    # The details of a refused connection hold the server's address, which is no client's business.
    details = UNREACHABLE if code is Code.UNAVAILABLE else problem.details()
    return HTTP_STATUS[code], details or code.name


def _of_http_exception(problem: HTTPException) -> tuple[int | None, str]:
    if problem.response is None:
        return problem.code, problem.description or problem.name
    status: int | None = getattr(problem.response, "status_code", None)
    return status, problem.description or "refused by inference.py"


def _is_error_status(status: Any) -> bool:
    return isinstance(status, int) and not isinstance(status, bool) and LOWEST <= status <= HIGHEST
