"""`failing_nursery.py FD NUMBER`: a nursery without TensorFlow, whose fork of that number fails."""

from __future__ import annotations

import errno
import os
import socket
import sys

from pierhead.modelserver.nursery import serve_orders


class FailingFork:
    """Forks, but for the `failing`th time, which children count too."""

    def __init__(self, failing: int) -> None:
        self._left = failing

    def __call__(self) -> int:
        self._left -= 1
        if self._left == 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return os.fork()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as supervisor:
        serve_orders(supervisor, lambda _arguments, _name: 7, FailingFork(int(sys.argv[2])))
