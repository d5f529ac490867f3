"""A want is told by what was raised, whatever its words."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from pierhead.errors import Code, ConfigError, ServingError, StartError
from pierhead.modelserver.exhaustion import is_exhaustion, refusal_of

REFUSED_THREAD = """
import resource
import threading
from pathlib import Path
from pierhead.modelserver.exhaustion import is_exhaustion

threading.stack_size(1 << 28)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 26), used + (1 << 26)))
try:
    threading.Thread(target=print).start()
except RuntimeError as problem:
    print(is_exhaustion(problem))
"""


def chained(problem: Exception, cause: Exception) -> Exception:
    problem.__cause__ = cause
    return problem


@pytest.mark.parametrize(
    "problem",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "x"),
        OSError(errno.EAGAIN, "x"),
        OSError(errno.EMFILE, "x"),
        OSError(errno.ENFILE, "x"),
        ServingError(Code.RESOURCE_EXHAUSTED, "x"),
        chained(StartError("x"), chained(ValueError("y"), OSError(errno.EMFILE, "z"))),
    ],
)
def test_want(problem: Exception) -> None:
    assert is_exhaustion(problem)


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.EADDRINUSE, "Cannot allocate memory"),
        OSError("out of memory"),
        RuntimeError("can't start new thread"),
        ServingError(Code.INTERNAL, "RESOURCE_EXHAUSTED: out of memory"),
        ConfigError(["MemoryError"]),
    ],
)
def test_words_are_no_want(problem: Exception) -> None:
    assert not is_exhaustion(problem)


def test_thread_that_the_system_refuses_is_a_want() -> None:
    command = [sys.executable, "-c", REFUSED_THREAD]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert "True\n" == result.stdout


def test_want_of_memory_in_a_request_is_refused_as_such() -> None:
    refusal = refusal_of(MemoryError("Unable to allocate 8 GiB"))

    assert isinstance(refusal, ServingError)
    assert (Code.RESOURCE_EXHAUSTED, "the model server has not enough memory for this request") == (
        refusal.code,
        refusal.message,
    )
    assert refusal is refusal_of(refusal)
