"""Ends a process when the one that watches it is killed, so that nothing is left running on its own.

A supervisor that is killed outright cannot stop its children. In a container they end with it, since it is
PID 1; elsewhere nginx would go on holding its port. `python -m pierhead.tether COMMAND …` becomes the
command, tethered; with `--directory=DIR` before it, in that directory.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["end_with_parent"]

PR_SET_PDEATHSIG = 1
DIRECTORY = "--directory="


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends; does nothing but on Linux."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def main() -> None:
    """Become the command on the command line."""
    command = sys.argv[1:]
    if command[0].startswith(DIRECTORY):
        os.chdir(command.pop(0).removeprefix(DIRECTORY))
    end_with_parent()
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
