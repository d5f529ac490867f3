"""What is told of processes: their family, their ports, their memory."""

from __future__ import annotations

import os
import socket
import subprocess

from benchmarks.processes import anonymous_megabytes, family, listening_ports, megabytes, program


def test_the_family_of_a_process_holds_its_children() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        members = family(os.getpid())
        child.kill()

    assert os.getpid() in members
    assert child.pid in members
    assert child.pid not in family(os.getpid())


def test_ports_are_those_that_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            ports = listening_ports([os.getpid()])
            own = connection.getsockname()[1]

    assert port in ports
    assert own not in ports


def test_a_process_that_is_gone_has_nothing() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()

    assert "" == program(child.pid)
    assert 0.0 == megabytes([child.pid]) == anonymous_megabytes([child.pid])
    assert set() == listening_ports([child.pid])
