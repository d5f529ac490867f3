"""Sockets of the HTTP door, with nobody behind them."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pierhead.modelserver.listening import SocketFile, is_refusing, listening_port, send_at_once


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rest.sock"


@pytest.fixture
def both_ends(path: Path) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the server's and the client's end of a connection over a file."""
    file = SocketFile(str(path))
    with closing(file.listener), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        server, _ = file.listener.accept()
        with server:
            yield server, client


def test_everybody_may_connect(path: Path) -> None:
    with closing(SocketFile(str(path)).listener):
        assert 0o666 == stat.S_IMODE(path.stat().st_mode)
        assert [path] == list(path.parent.iterdir())


def test_older_file_gives_way(path: Path) -> None:
    path.write_text("left by another")
    with closing(SocketFile(str(path)).listener), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_file_goes_with_its_server_but_not_with_a_predecessor(path: Path) -> None:
    first, second = SocketFile(str(path)), SocketFile(str(path))
    with closing(first.listener), closing(second.listener):
        first.remove()
        assert path.exists()

        second.remove()
        second.remove()
        assert not path.exists()


def test_place_that_cannot_be_had_leaves_nothing(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        SocketFile(str(path))

    assert [path] == list(path.parent.iterdir())


def test_client_that_only_said_all_it_had_still_reads(
    both_ends: tuple[socket.socket, socket.socket],
) -> None:
    server, client = both_ends
    assert not is_refusing(server)

    client.shutdown(socket.SHUT_WR)
    assert not is_refusing(server)

    client.close()
    assert is_refusing(server)


def test_connection_of_a_file_needs_no_option(both_ends: tuple[socket.socket, socket.socket]) -> None:
    send_at_once(both_ends[0])


def test_closed_end_of_ours_reads_nothing(both_ends: tuple[socket.socket, socket.socket]) -> None:
    both_ends[0].close()

    assert is_refusing(both_ends[0])


def test_port_is_sent_to_at_once_until_the_client_s_machine_refuses() -> None:
    with (
        listening_port("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        server, _ = listener.accept()
        with server:
            send_at_once(server)
            assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not is_refusing(server)

            client.close()
            assert not is_refusing(server)
            server.send(b"x")
            assert is_refusing(server)
