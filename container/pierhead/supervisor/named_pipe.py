"""A pipe with a name, for a program that opens its log by name, and the thread that reads it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["NamedPipe"]

PIPE_BYTES = 1 << 20
CHUNK = 1 << 16
# No byte of a log: written by us when nothing more is to be taken.
LAST = b"\0"


class NamedPipe:
    """What is written to `path` is handed to `take`, chunk by chunk, until the pipe is closed."""

    def __init__(self, path: Path, take: Callable[[bytes], None]) -> None:
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # Open for both ends: opening to write never waits for a reader, and writers come and go.
        self._pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._take = take
        self._thread = threading.Thread(target=self._read, name=path.name, daemon=True)

    @property
    def is_read(self) -> bool:
        """Whether what is written is taken."""
        return self._thread.is_alive()

    def open(self) -> None:
        """Start to read."""
        self._thread.start()

    def close(self) -> None:
        """Take what has been written, and stop."""
        os.write(self._pipe, LAST)
        self._thread.join()
        os.close(self._pipe)

    def _read(self) -> None:
        chunk = b""
        while not chunk.endswith(LAST):
            chunk = os.read(self._pipe, CHUNK)
            self._take(chunk.removesuffix(LAST))
