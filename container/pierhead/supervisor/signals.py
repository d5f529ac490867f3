"""The signals that the supervisor waits for, held back until it does."""

from __future__ import annotations

import signal

__all__ = ["hold_signals", "stop_signals"]


def stop_signals() -> set[signal.Signals]:
    """Return the signals that ask for a stop; what was ignored before us stays so: nohup asks for that."""
    numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}
    return {number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN}


def hold_signals() -> set[signal.Signals]:
    """Block the signals that ask for a stop, and those of children; return them, for whoever waits.

    Every thread that is made later inherits the block.
    """
    awaited = {*stop_signals(), signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    return awaited
