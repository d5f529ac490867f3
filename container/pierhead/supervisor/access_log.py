"""Where nginx writes its access lines: to standard output, or to a pipe that is copied there.

nginx opens its log by name. Standard output cannot be opened again where it is a socket, or belongs to the
user who started us as somebody else, as a container's does with `docker run --user`.
"""

from __future__ import annotations

import os
from pathlib import Path

from pierhead.logs import LogWriter
from pierhead.supervisor.named_pipe import NamedPipe

__all__ = ["access_log_file", "copied_log"]

STANDARD_OUTPUT = Path("/dev/stdout")
DESCRIPTOR = 1


def access_log_file(pipe: Path, output: Path = STANDARD_OUTPUT) -> Path:
    """Return the file to name to nginx: standard output, where it can be opened again, else the pipe."""
    try:
        os.close(os.open(output, os.O_WRONLY | os.O_APPEND))
    except OSError:
        return pipe
    return output


def copied_log(pipe: Path, descriptor: int = DESCRIPTOR) -> NamedPipe:
    """Return the pipe, from which whole chunks of lines go to a descriptor."""
    writer = LogWriter(descriptor=descriptor)
    return NamedPipe(pipe, writer.copy)
