"""Ends a process when the one that watches it is killed, so that nothing is left running on its own.

A supervisor that is killed outright cannot stop its children. In a container they end with it, since it is
PID 1; elsewhere nginx would go on holding its port. `python -m pierhead.tether COMMAND …` becomes the
command, tethered.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["end_with_parent"]

PR_SET_PDEATHSIG = 1


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends; does nothing but on Linux."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def main() -> None:
    """Become the command on the command line."""
    end_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606


if __name__ == "__main__":
    main()
