"""Want of memory, processes or files, told from other failures by what was raised and never by its words.

A text may name anything, a user's tensor `out_of_memory` too; and what the answer is decides whether
SageMaker unloads other models.
"""

from __future__ import annotations

import threading
from types import TracebackType

from pierhead.errors import LACKS, Code, PierheadError, ServingError

__all__ = ["NO_MEMORY", "REFUSALS", "is_exhaustion", "refusal_of"]

NO_MEMORY = "the model server has not enough memory for this request"
# What ends a request with an answer; all else is a fault of ours.
REFUSALS = (PierheadError, MemoryError)


def is_exhaustion(problem: BaseException | None) -> bool:
    """Return whether a failure, or what it was raised from, is a want of memory, processes or files."""
    while problem is not None:
        if _is_want(problem):
            return True
        problem = problem.__cause__
    return False


def refusal_of(problem: PierheadError | MemoryError) -> PierheadError:
    """Return what one of REFUSALS is to the client."""
    return problem if isinstance(problem, PierheadError) else ServingError(Code.RESOURCE_EXHAUSTED, NO_MEMORY)


def _is_want(problem: BaseException) -> bool:
    match problem:
        case MemoryError():
            return True
        case ServingError(code=code):
            return code is Code.RESOURCE_EXHAUSTED
        case OSError(errno=number):
            return number in LACKS
        case RuntimeError():
            return _comes_from_start_of_thread(problem.__traceback__)
    return False


def _comes_from_start_of_thread(traceback: TracebackType | None) -> bool:
    """Return whether `Thread.start` itself raised, which it does where the system has no more threads."""
    if traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code is threading.Thread.start.__code__
