"""What a unix socket's connections do beyond what `test_http_protocol` asks of both kinds."""

from __future__ import annotations

import asyncio
import errno
import selectors
import socket
from pathlib import Path
from typing import Any

import pytest

from pierhead.modelserver.file_connections import FileServer

SECONDS = 30


class Echo(asyncio.Protocol):
    """Sends back what it reads; `fault` is a bug, `abort` ends the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        if data == b"fault":
            raise AttributeError("a bug")
        if data == b"abort":
            self._transport.abort()
        self._transport.write(data)


class FullOnce(socket.socket):
    """A listener of a process that has no file left, the first time."""

    is_full = True

    def accept(self) -> tuple[socket.socket, Any]:
        if self.is_full:
            self.is_full = False
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def answers(path: str, listener: socket.socket, *texts: bytes) -> list[bytes]:
    """Return what each text gets, on a connection of its own, at a server of echoes."""

    async def ask() -> list[bytes]:
        listener.bind(path)
        listener.listen()
        server = FileServer(listener, Echo)
        answers = [await _answer(path, text) for text in texts]
        server.close()
        return answers

    return asyncio.run(asyncio.wait_for(ask(), SECONDS))


async def _answer(path: str, text: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(text)
    writer.write_eof()
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("text", [b"fault", b"abort"])
def test_connection_that_breaks_off_harms_no_other(tmp_path: Path, text: bytes) -> None:
    path = str(tmp_path / "echo.sock")

    assert [b"", b"x"] == answers(path, socket.socket(socket.AF_UNIX), text, b"x")


def test_bug_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answers(str(tmp_path / "echo.sock"), socket.socket(socket.AF_UNIX), b"fault")

    assert "AttributeError: a bug" in caplog.text


def test_connections_wait_while_there_is_no_file_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "echo.sock")

    assert [b"x"] == answers(path, FullOnce(socket.AF_UNIX), b"x")
    assert "no connection can be accepted" in caplog.text


def test_answer_to_a_client_that_is_gone_leaves_nothing_registered(tmp_path: Path) -> None:
    """Whatever stayed registered for a socket would be called for the next one with its number."""
    selector = selectors.DefaultSelector()
    failures: list[dict[str, Any]] = []

    async def ask() -> tuple[set[Any], set[Any]]:
        path = str(tmp_path / "echo.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        late: list[Late] = []
        server = FileServer(listener, lambda: Late(late))
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        before = set(selector.get_map())
        with socket.socket(socket.AF_UNIX) as gone:
            gone.connect(path)
            gone.sendall(b"x")
        while not late:
            await asyncio.sleep(0)
        late[0].answer()
        await late[0].lost.wait()
        after = set(selector.get_map())
        server.close()
        return before, after

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        before, after = runner.run(asyncio.wait_for(ask(), SECONDS))
    assert (before, []) == (after, failures)


class Late(Echo):
    """Answers when it is told to, however gone the client may be."""

    def __init__(self, waiting: list[Late]) -> None:
        self._waiting = waiting
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._data = data
        self._waiting.append(self)

    def eof_received(self) -> bool:
        return True

    def connection_lost(self, _problem: Exception | None) -> None:
        self.lost.set()

    def answer(self) -> None:
        self._transport.write(self._data)
        self._transport.write(self._data)
        self._transport.close()
