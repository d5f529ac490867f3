"""What the supervisor is told of a server that cannot start.

Its sentence goes on to whoever asked for the model, so it is one of ours: the problem's own text may hold
paths and addresses, and stands in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pierhead import control
from pierhead.errors import Code, ControlError, ModelFailure, ModelsUnavailable, ServingError
from pierhead.modelserver.exhaustion import is_exhaustion

__all__ = ["failure_code", "report_failure"]

SHOWN_VERSIONS = 5


def report_failure(supervisor: str, process: str, problem: BaseException) -> None:
    """Tell the supervisor's control socket why `process` ends; one that does not answer is gone itself."""
    message = control.StartFailed(process, int(failure_code(problem)), _sentence(problem))
    with suppress(ControlError):
        control.send(supervisor, message)


def failure_code(problem: BaseException) -> Code:
    """Return the canonical code of a failed start: RESOURCE_EXHAUSTED wherever something was lacking."""
    codes = [failure.code for failure in _failures(problem)]
    if is_exhaustion(problem) or Code.RESOURCE_EXHAUSTED in codes:
        return Code.RESOURCE_EXHAUSTED
    return problem.code if isinstance(problem, ServingError) else Code.INTERNAL


def _sentence(problem: BaseException) -> str:
    listed = [
        f"version {failure.version} of '{failure.model}' ({failure.code.name})"
        if failure.version is not None
        else f"'{failure.model}' ({failure.code.name})"
        for failure in _failures(problem)
    ]
    more = ["others"] if len(listed) > SHOWN_VERSIONS else []
    subject = ", ".join(listed[:SHOWN_VERSIONS] + more) or "the model server"
    if failure_code(problem) is Code.RESOURCE_EXHAUSTED:
        return f"memory, processes or files were lacking for {subject}"
    verb = "could not be loaded" if listed else f"could not start ({failure_code(problem).name})"
    return f"{subject} {verb}; the log says why"


def _failures(problem: BaseException) -> Sequence[ModelFailure]:
    return problem.failures if isinstance(problem, ModelsUnavailable) else ()
