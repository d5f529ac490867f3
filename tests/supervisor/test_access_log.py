"""nginx's access lines reach standard output whether or not it can be opened again."""

from __future__ import annotations

import socket
from pathlib import Path

from pierhead.supervisor.access_log import access_log_file, copied_log

SECONDS = 30


def test_output_that_can_be_opened_is_named(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.touch()

    assert output == access_log_file(tmp_path / "pipe", output)


def test_socket_is_replaced_by_a_pipe(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "output"))

        assert tmp_path / "pipe" == access_log_file(tmp_path / "pipe", tmp_path / "output")


def test_lines_are_copied_as_they_are(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(SECONDS)
        log = copied_log(tmp_path / "pipe", ours.fileno())
        log.open()
        with (tmp_path / "pipe").open("wb") as writer:
            writer.write(b"POST /invocations 200\n")

        assert b"POST /invocations 200\n" == theirs.recv(100)
        log.close()
