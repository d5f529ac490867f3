"""What the nursery does when the system has no room for one more process."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.modelserver.running_server import wait_until

from pierhead.control import Forked, ForkFailed, ForkServer, Message, NurseryReady, decode, encode

SCRIPT = Path(__file__).with_name("failing_nursery.py")
SECONDS = 30.0


class Orders:
    """The supervisor's end."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self.pid = pid
        assert NurseryReady() == self.read()

    def read(self) -> Message:
        return decode(self._lines.readline())

    def fork(self) -> Message:
        self._connection.sendall(encode(ForkServer("m", ())))
        return self.read()

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def children(self) -> str:
        return Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()


@contextmanager
def running_nursery(failing_fork: int) -> Iterator[Orders]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, str(SCRIPT), str(theirs.fileno()), str(failing_fork)]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    with ours:
        ours.settimeout(SECONDS)
        yield Orders(ours, process.pid)
        ours.shutdown(socket.SHUT_RDWR)
        assert process.wait(SECONDS) == 0


def test_first_fork_that_fails_is_told_and_the_next_order_is_carried_out() -> None:
    with running_nursery(1) as orders:
        files = orders.open_files()

        assert ForkFailed("m", errno.EAGAIN) == orders.fork()
        assert (files, "") == (orders.open_files(), orders.children())
        assert isinstance(orders.fork(), Forked)


def test_second_fork_that_fails_leaves_no_half_made_child() -> None:
    # The count goes on in the child that forks again, and not in the nursery.
    with running_nursery(2) as orders:
        files = orders.open_files()

        assert ForkFailed("m", errno.EAGAIN) == orders.fork()
        assert (files, "") == (orders.open_files(), orders.children())


def test_servers_are_forked_without_a_file_of_the_nursery_s_left() -> None:
    with running_nursery(99) as orders:
        files = orders.open_files()
        answers = [orders.fork() for _ in range(3)]

        assert 3 == len({answer.pid for answer in answers if isinstance(answer, Forked)})
        assert files == orders.open_files()
        wait_until(lambda: not orders.children(), SECONDS)


@pytest.mark.skipif(os.geteuid() == 0, reason="the limit does not hold for root")
def test_limit_of_processes_is_told() -> None:
    with running_nursery(99) as orders:
        subprocess.run(["prlimit", f"--pid={orders.pid}", "--nproc=1"], check=True)

        assert ForkFailed("m", errno.EAGAIN) == orders.fork()
