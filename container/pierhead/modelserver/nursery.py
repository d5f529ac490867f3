"""Imports TensorFlow once, then forks a model server for each request of the supervisor.

Importing TensorFlow costs seconds and hundreds of megabytes; a server forked after the import shares both.
Until the fork nothing may start a thread, open a device or make a gRPC object: none of them survives one. A
server is forked twice, so that it becomes a child of the supervisor (PID 1, or a subreaper) and not of the
nursery.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from pierhead.control import LONGEST_MESSAGE, Forked, ForkServer, NurseryReady, decode, encode
from pierhead.errors import ControlError
from pierhead.tether import end_with_parent

__all__ = ["run_nursery"]

LOG = logging.getLogger(__name__)
PR_SET_NAME = 15
ADOPTION_POLL_SECONDS = 0.0005
Main = Callable[[Sequence[str], str], int]


def run_nursery(descriptor: int, main: Main) -> int:
    """Serve the supervisor's socket until it closes; return the exit status.

    `main` runs a server with its arguments and its name, in the forked process.
    """
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _set_title("nursery")
    with socket.socket(fileno=descriptor) as supervisor:
        _import_everything()
        supervisor.sendall(encode(NurseryReady()))
        with supervisor.makefile("rb") as lines:
            while line := lines.readline(LONGEST_MESSAGE):
                _answer(line, supervisor, main)
    return 0


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _import_everything() -> None:
    importlib.import_module("pierhead.modelserver.server")
    importlib.import_module("encodings.idna")
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        LOG.warning("the nursery has %d threads: a library started some while it was imported", threads)
    gc.collect()
    # What the collector never visits again is never written, and so stays shared with the servers.
    gc.freeze()


def _answer(line: bytes, supervisor: socket.socket, main: Main) -> None:
    try:
        message = decode(line)
    except ControlError as problem:
        LOG.error("%s", problem)
        return
    if not isinstance(message, ForkServer):
        LOG.error("the nursery cannot answer a %s", type(message).__name__)
        return
    pid = _fork_twice(message, supervisor, main)
    supervisor.sendall(encode(Forked(message.name, pid)))


def _fork_twice(order: ForkServer, supervisor: socket.socket, main: Main) -> int:
    """Return the pid of the server, whose parent has already ended."""
    reading, writing = os.pipe()
    intermediate = os.fork()
    if intermediate == 0:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.close(writing)
            _wait_for_adoption(parent)
            _become_server(order, supervisor, main)
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(intermediate, 0)
    with os.fdopen(reading, "rb") as pipe:
        return int(pipe.read())


def _become_server(order: ForkServer, supervisor: socket.socket, main: Main) -> NoReturn:
    status = 1
    try:
        os.setpgid(0, 0)
        os.close(supervisor.fileno())
        end_with_parent()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        _set_title(order.name)
        status = main(order.arguments, order.name)
    finally:
        # Never back into the nursery's loop, whatever happened.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait_for_adoption(parent: int) -> None:
    """Wait until the intermediate parent has ended: tethered to that one, the server would end with it."""
    while os.getppid() == parent:
        time.sleep(ADOPTION_POLL_SECONDS)


def _set_title(title: str) -> None:
    """Set the name that `ps` and `top` show; the kernel keeps 15 bytes of it."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(title.encode()[:15]), 0, 0, 0)
