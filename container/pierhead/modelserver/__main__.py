"""The entry point: `python -m pierhead.modelserver` with the flags of `tensorflow_model_server`.

`--version` and `--help` answer without TensorFlow. `--nursery=FD` imports TensorFlow once and forks a server
for each request of the supervisor (see `nursery`).
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib import metadata

import pierhead
from pierhead.errors import ConfigError, PierheadError, ServingError
from pierhead.logs import LogWriter, configure_logging
from pierhead.modelserver.flags import ParsedFlags, parse_flags, usage
from pierhead.modelserver.start_failure import failure_code, report_failure
from pierhead.modelserver.startup import check_flags, configured_models
from pierhead.settings import log_settings

__all__ = ["main"]

LOG = logging.getLogger("pierhead.modelserver")
NURSERY = "--nursery="
FAILED = 255
# The last three are what the system's want of something looks like from Python.
START_FAILURES = (PierheadError, MemoryError, OSError, RuntimeError)
TENSORFLOW_DISTRIBUTIONS = ("tensorflow-cpu", "tensorflow", "tensorflow-intel")


def main(argv: Sequence[str] | None = None, name: str = "model-server") -> int:
    """Run a model server or the nursery; return the exit status.

    A server calls itself `name` in its log, unless --process_name says otherwise.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) == 1 and arguments[0].startswith(NURSERY):
        return _run_nursery(arguments[0].removeprefix(NURSERY))
    try:
        parsed = parse_flags(arguments)
    except ConfigError as problem:
        _say(*problem.problems, usage())
        return FAILED
    if parsed.flags.version:
        _say(
            f"TensorFlow ModelServer: {pierhead.__version__}", f"TensorFlow Library: {_tensorflow_version()}"
        )
        return 0
    if parsed.unknown:
        is_help = parsed.unknown[0] == "--help"
        _say(*([] if is_help else [f"unknown argument: {parsed.unknown[0]}"]), usage())
        if is_help:
            return FAILED
    return _serve(parsed, parsed.flags.process_name or name)


def _serve(parsed: ParsedFlags, name: str) -> int:
    try:
        _prepare_logs(name)
    except ConfigError as problem:
        _say(*problem.problems)
        return FAILED
    for flag, reason in parsed.without_effect().items():
        LOG.warning("--%s has no effect: %s", flag, reason)
    try:
        check_flags(parsed.flags)
        models = configured_models(parsed.flags)
        importlib.import_module("pierhead.modelserver.server").serve(parsed.flags, models)
    except START_FAILURES as problem:
        _say(f"Failed to start server. Error: {_described(problem)}")
        if parsed.flags.supervisor_socket:
            report_failure(parsed.flags.supervisor_socket, name, problem)
        return FAILED
    return 0


def _described(problem: Exception) -> str:
    if isinstance(problem, ServingError):
        return f"{problem.code.name}: {problem.message}"
    if isinstance(problem, PierheadError):
        return str(problem)
    LOG.error("the start failed in a way that is not foreseen", exc_info=problem)
    return f"{failure_code(problem).name}: {type(problem).__name__}: {problem}"


def _run_nursery(descriptor: str) -> int:
    _prepare_logs("nursery")
    nursery = importlib.import_module("pierhead.modelserver.nursery")
    status: int = nursery.run_nursery(int(descriptor), main)
    return status


def _prepare_logs(name: str) -> None:
    """Send the server's own lines to the log, and keep TensorFlow to its errors; may raise ConfigError."""
    wanted = log_settings(os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    configure_logging(name, wanted.level, LogWriter(wanted.style, wanted.descriptor))
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


def _tensorflow_version() -> str:
    for name in TENSORFLOW_DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "none"


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
