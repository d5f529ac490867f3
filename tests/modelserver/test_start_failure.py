from __future__ import annotations

import errno
import socket
import threading
from pathlib import Path

import pytest

from pierhead.control import Accepted, Message, StartFailed, decode, encode
from pierhead.errors import Code, ConfigError, ModelFailure, ModelsUnavailable, ServingError, StartError
from pierhead.modelserver.start_failure import failure_code, report_failure


def unavailable(*codes: Code) -> ModelsUnavailable:
    failures = [ModelFailure("m", version, code) for version, code in enumerate(codes, 1)]
    return ModelsUnavailable("out of memory in /opt/ml/model at 10.0.0.1", failures)


def reported(problem: Exception, tmp_path: Path) -> Message:
    """Return what a supervisor is told of a failed start."""
    messages: list[Message] = []
    path = str(tmp_path / "control.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                messages.append(decode(lines.readline()))
                connection.sendall(encode(Accepted()))

        thread = threading.Thread(target=answer)
        thread.start()
        report_failure(path, "m/model-server-1", problem)
        thread.join(30)
    return messages[0]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (unavailable(Code.NOT_FOUND), Code.UNKNOWN),
        (unavailable(Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED), Code.RESOURCE_EXHAUSTED),
        (ServingError(Code.INVALID_ARGUMENT, "out of memory"), Code.INVALID_ARGUMENT),
        (ConfigError(["out of memory"]), Code.INTERNAL),
        (OSError(errno.EADDRINUSE, "x"), Code.INTERNAL),
        (OSError(errno.EMFILE, "x"), Code.RESOURCE_EXHAUSTED),
        (MemoryError(), Code.RESOURCE_EXHAUSTED),
    ],
)
def test_code_is_the_problem_s_own_unless_something_was_lacking(problem: Exception, code: Code) -> None:
    assert code == failure_code(problem)


@pytest.mark.parametrize(
    ("problem", "code", "reason"),
    [
        (
            unavailable(Code.NOT_FOUND, Code.UNKNOWN),
            Code.UNKNOWN,
            "version 1 of 'm' (NOT_FOUND), version 2 of 'm' (UNKNOWN) could not be loaded; the log says why",
        ),
        (
            ModelsUnavailable("x", [ModelFailure("m", None, Code.NOT_FOUND)]),
            Code.UNKNOWN,
            "'m' (NOT_FOUND) could not be loaded; the log says why",
        ),
        (
            unavailable(Code.RESOURCE_EXHAUSTED),
            Code.RESOURCE_EXHAUSTED,
            "memory, processes or files were lacking for version 1 of 'm' (RESOURCE_EXHAUSTED)",
        ),
        (
            StartError("UNKNOWN: the gRPC server cannot listen at 127.0.0.1:8500"),
            Code.INTERNAL,
            "the model server could not start (INTERNAL); the log says why",
        ),
        (
            MemoryError(),
            Code.RESOURCE_EXHAUSTED,
            "memory, processes or files were lacking for the model server",
        ),
    ],
)
def test_supervisor_is_told_in_words_without_paths_and_addresses(
    problem: Exception, code: Code, reason: str, tmp_path: Path
) -> None:
    expected = StartFailed("m/model-server-1", code, reason)

    assert expected == reported(problem, tmp_path)


def test_many_versions_are_not_all_listed(tmp_path: Path) -> None:
    message = reported(unavailable(*[Code.NOT_FOUND] * 99), tmp_path)

    assert isinstance(message, StartFailed)
    assert "version 5 of 'm' (NOT_FOUND), others could not be loaded" in message.reason


def test_supervisor_that_is_gone_is_no_further_problem(tmp_path: Path) -> None:
    report_failure(str(tmp_path / "nobody.sock"), "m/model-server-1", MemoryError())
