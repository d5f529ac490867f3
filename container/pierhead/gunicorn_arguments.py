"""GUNICORN_CMD_ARGS: which of gunicorn's options this stack takes, and what becomes of each.

Options that the supervisor has to know are settings of ours under another name; options that only gunicorn
has to know are passed to it; all others are refused at the start, because they would take a worker, its
socket or its log away from the stack. Supervisor and handler workers both read the text here, without
gunicorn.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

__all__ = ["GunicornArguments", "read_gunicorn_arguments"]

SETTINGS: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        ("--workers", "-w"): "SAGEMAKER_GUNICORN_WORKERS",
        ("--threads",): "SAGEMAKER_GUNICORN_THREADS",
        ("--worker-class", "-k"): "SAGEMAKER_GUNICORN_WORKER_CLASS",
        ("--timeout", "-t"): "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS",
        ("--log-level",): "SAGEMAKER_GUNICORN_LOGLEVEL",
    }
)
NUMBERS = (
    ("--max-requests",),
    ("--max-requests-jitter",),
    ("--worker-connections",),
    ("--backlog",),
    ("--graceful-timeout",),
)
TEXTS = (("--access-logfile",), ("--access-logformat",), ("--env", "-e"), ("--name", "-n"))
REFUSED: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        (
            "--bind",
            "-b",
        ): "nginx finds the workers at a socket of the stack; SAGEMAKER_BIND_TO_PORT is the port",
        ("--preload", "--preload-app"): "inference.py is loaded in each worker, after gevent's patching",
        ("--keep-alive",): "a connection between nginx and a worker carries one request",
        ("--config", "-c"): "settings come from the environment alone",
        ("--daemon", "-D"): "the supervisor has to see the workers' end",
        ("--reload",): "a changed artifact needs a new start",
    }
)


@dataclass(frozen=True)
class GunicornArguments:
    """What GUNICORN_CMD_ARGS says: texts of our settings by variable, and words for gunicorn's own parser."""

    settings: Mapping[str, str]
    passed: tuple[str, ...]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def read_gunicorn_arguments(text: str) -> GunicornArguments:
    """Return what the text says; raise ValueError, with a sentence, where the stack cannot do it."""
    found, others = _parser().parse_known_args(shlex.split(text))
    given = {name: values for name, values in vars(found).items() if values is not None}
    _refuse(given, others)
    variables = {flags[0]: variable for flags, variable in SETTINGS.items()}
    return GunicornArguments(
        {variable: given[flag][-1] for flag, variable in variables.items() if flag in given},
        tuple(
            f"{flag}={value}" for flag, values in given.items() if flag not in variables for value in values
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flags in (*SETTINGS, *TEXTS):
        parser.add_argument(*flags, dest=flags[0], action="append")
    for flags in NUMBERS:
        parser.add_argument(*flags, dest=flags[0], action="append", type=_number)
    for flags in REFUSED:
        parser.add_argument(*flags, dest=flags[0], action="append", nargs="?", const="")
    return parser


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _refuse(given: Mapping[str, object], others: list[str]) -> None:
    for flags, reason in REFUSED.items():
        if flags[0] in given:
            raise ValueError(f"{flags[0]} cannot be used here: {reason}")
    if others:
        known = sorted(flags[0] for flags in (*SETTINGS, *NUMBERS, *TEXTS))
        raise ValueError(f"{others[0]} is not taken here; these are: {', '.join(known)}")
