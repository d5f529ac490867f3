"""Why a model could not be loaded, as a canonical code and a sentence for whoever asked for it.

RESOURCE_EXHAUSTED, on which SageMaker unloads other models, follows from facts alone: a signal, an errno, the
code that a process gave, the memory in use, or a line that a program prints for nothing else.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence

from pierhead.errors import LACKS, Code, ServingError
from pierhead.supervisor.exhaustion import says_exhausted
from pierhead.supervisor.group import ProcessGroup
from pierhead.supervisor.memory_use import MemoryUse
from pierhead.supervisor.process import Process

__all__ = ["explain_end", "explain_refusal", "explain_timeout", "refuse_full_memory"]

FAILURES = tuple(code for code in Code if code is not Code.OK)
WATERMARK = "PIERHEAD_MEMORY_WATERMARK_PERCENT"


def explain_end(name: str, process: Process, group: ProcessGroup, last_lines: Sequence[str]) -> ServingError:
    """Return why a model whose process was given up cannot be served."""
    said = group.start_failure
    if said is not None:
        # User code shares the process that sent it: what is no failure's code must not stop the loop.
        code = Code(said.code) if said.code in FAILURES else Code.INTERNAL
        return ServingError(code, f"model '{name}' cannot be loaded: {said.reason}")
    role = process.name.rpartition("/")[2]
    reason = f"its {role} {process.reason}"
    if process.status == -signal.SIGKILL or process.error_number in LACKS or says_exhausted(last_lines):
        return ServingError(Code.RESOURCE_EXHAUSTED, f"model '{name}' finds no memory: {reason}")
    return ServingError(Code.INTERNAL, f"model '{name}' cannot be loaded: {reason}; the log says more")


def explain_refusal(name: str, problem: OSError) -> ServingError:
    """Return why a model cannot be served where the system refuses to make its files."""
    code = Code.RESOURCE_EXHAUSTED if problem.errno in LACKS else Code.INTERNAL
    reason = errno.errorcode.get(problem.errno or 0, "an error of the system")
    return ServingError(code, f"model '{name}' cannot be prepared: {reason}")


def explain_timeout(name: str, seconds: int, use: MemoryUse | None, watermark: int) -> ServingError:
    """Return why a load took too long: memory was short, or else nothing is known."""
    reason = f"model '{name}' was not ready within {seconds} s (SAGEMAKER_TFS_WAIT_TIME_SECONDS)"
    if use is not None and use.percent > watermark:
        return ServingError(Code.RESOURCE_EXHAUSTED, f"{reason}, and {_describe(use, watermark)}")
    return ServingError(Code.DEADLINE_EXCEEDED, reason)


def refuse_full_memory(name: str, use: MemoryUse | None, watermark: int) -> ServingError | None:
    """Return a refusal where the memory in use is beyond the watermark; 100 never refuses."""
    if use is None or watermark >= 100 or use.percent <= watermark:
        return None
    return ServingError(Code.RESOURCE_EXHAUSTED, f"no memory for model '{name}': {_describe(use, watermark)}")


def _describe(use: MemoryUse, watermark: int) -> str:
    return f"{use.describe()} are in use, more than {WATERMARK}={watermark} allows"
