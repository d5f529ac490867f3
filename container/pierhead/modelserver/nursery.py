"""Imports TensorFlow once, then forks a model server for each request of the supervisor.

Importing TensorFlow costs seconds and hundreds of megabytes; a server forked after the import shares both.
Until the fork nothing may start a thread, open a device or make a gRPC object: none of them survives one. A
server is forked twice, so that it becomes a child of the supervisor (PID 1, or a subreaper) and not of the
nursery. Where the system has no room for a further process the order is refused and the nursery lives on.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from io import RawIOBase
from types import FrameType
from typing import NoReturn

from pierhead.control import LONGEST_MESSAGE, Forked, ForkFailed, ForkServer, NurseryReady, decode, encode
from pierhead.errors import ControlError
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tether import end_with_parent

__all__ = ["run_nursery", "serve_orders"]

LOG = logging.getLogger(__name__)
PR_SET_NAME = 15
# The later ones are what the first or a library imports only when it is used: each server would do it anew.
IMPORTS = ("pierhead.modelserver.server", "encodings.idna", "grpc._server", "grpc._interceptor")
ADOPTION_POLL_SECONDS = 0.0005
Main = Callable[[Sequence[str], str], int]
Fork = Callable[[], int]
# The kernel ends a process that only forks when memory is short; nothing else does.
NOTHING_REPORTED = -errno.ENOMEM


def run_nursery(descriptor: int, main: Main) -> int:
    """Serve the supervisor's socket until it closes; return the exit status.

    `main` runs a server with its arguments and its name, in the forked process.
    """
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _set_title("nursery")
    with socket.socket(fileno=descriptor) as supervisor:
        _import_everything()
        serve_orders(supervisor, main)
    return 0


def serve_orders(supervisor: socket.socket, main: Main, fork: Fork = os.fork) -> None:
    """Tell the supervisor that servers can be forked, and fork what it orders until the socket closes."""
    supervisor.sendall(encode(NurseryReady()))
    with supervisor.makefile("rb") as lines:
        while line := lines.readline(LONGEST_MESSAGE):
            _answer(line, supervisor, main, fork)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _import_everything() -> None:
    for name in IMPORTS:
        importlib.import_module(name)
    import_serving_stubs()
    importlib.import_module("pierhead.modelserver.runtimes.saved_model").list_operations()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        LOG.warning("the nursery has %d threads: a library started some while it was imported", threads)
    gc.collect()
    # What the collector never visits again is never written, and so stays shared with the servers.
    gc.freeze()


def _answer(line: bytes, supervisor: socket.socket, main: Main, fork: Fork) -> None:
    try:
        message = decode(line)
    except ControlError as problem:
        LOG.error("%s", problem)
        return
    if not isinstance(message, ForkServer):
        LOG.error("the nursery cannot answer a %s", type(message).__name__)
        return
    answer: Forked | ForkFailed
    try:
        answer = Forked(message.name, _fork_twice(message, supervisor, main, fork))
    except OSError as problem:
        LOG.error("no process for %s: %s", message.name, problem)
        answer = ForkFailed(message.name, problem.errno or errno.EAGAIN)
    supervisor.sendall(encode(answer))


def _fork_twice(order: ForkServer, supervisor: socket.socket, main: Main, fork: Fork) -> int:
    """Return the pid of the server, whose parent has already ended; raise OSError where there is no room."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as report:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            intermediate = fork()
            if intermediate == 0:
                report.close()
                _fork_server(order, supervisor, main, fork, pipe)
        os.waitpid(intermediate, 0)
        pid = int(report.read() or NOTHING_REPORTED)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return pid


def _fork_server(
    order: ForkServer, supervisor: socket.socket, main: Main, fork: Fork, pipe: RawIOBase
) -> NoReturn:
    """Fork the server, write its pid into the pipe, or the negative errno, and end."""
    try:
        parent = os.getpid()
        pid = fork()
        if pid == 0:
            pipe.close()
            _wait_for_adoption(parent)
            _become_server(order, supervisor, main)
        pipe.write(b"%d" % pid)
    except OSError as problem:
        pipe.write(b"-%d" % (problem.errno or errno.EAGAIN))
    finally:
        # Never back into the nursery's loop, whatever happened.
        os._exit(0)


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
