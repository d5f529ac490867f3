"""How every program of the stack writes its log: one line an event, to standard error, at once."""

from __future__ import annotations

import logging
import sys

__all__ = ["configure_logging"]


def configure_logging(program: str, level: str = "info") -> None:
    """Send this process's log records to standard error, each line naming the program."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s %(levelname)s {program}: %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
