"""The `pierhead` command."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from types import FrameType

from pierhead.errors import PierheadError
from pierhead_sagemaker import check, serve
from pierhead_sagemaker.terminal import complain

__all__ = ["main"]

DESCRIPTION = """\
Pierhead runs SageMaker inference containers: it serves a model.tar.gz on this machine as an endpoint would,
without Docker and without an AWS account."""
EXAMPLE = """\
example:
  pierhead check model.tar.gz
  pierhead serve model.tar.gz

`pierhead COMMAND --help` explains a command."""
COMMANDS = (serve, check)
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; a failure is one message on stderr and status 1."""
    options = _parser().parse_args(argv)
    # SIGTERM unwinds as Ctrl-C does, so that folders of our own are removed.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(options.run(options))
    except (PierheadError, OSError) as error:
        complain(f"pierhead: {error}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pierhead",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pierhead {version('pierhead')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
