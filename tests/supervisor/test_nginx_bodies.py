"""Bodies of any size through the real nginx: limits, streams, refusals that can be read, and no files."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.supervisor.nginx_site import REFUSED_BODY, Seen, Site, free_port, recording_fakes, running_nginx

from pierhead.supervisor.run_folder import RunFolder

MEGABYTE = 1 << 20
LIMIT = 20 * MEGABYTE
HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PIECE = b"x" * (1 << 16)


@dataclass(frozen=True)
class Rig:
    """An nginx, what has come to those behind it, and its folder."""

    site: Site
    seen: list[Seen]
    run: RunFolder

    @contextlib.contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.site.port), timeout=30) as connection:
            yield connection

    def whole_at(self) -> list[str]:
        """Return where whole bodies have come; one that was cut short may still be noted long after."""
        return [each.name for each in self.seen if each.length is not None]

    def spooled(self) -> list[Path]:
        """Return the files that nginx holds for bodies and answers."""
        return [path for path in self.run.nginx.rglob("*") if path.is_file() and path.name != "nginx.pid"]


@contextlib.contextmanager
def rig(name: str, *, has_hooks: bool, is_embedded: bool, **environ: str) -> Iterator[Rig]:
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    folder.chmod(0o711)
    run = RunFolder.make(folder / name)
    options = {"has_hooks": has_hooks, "is_embedded": is_embedded, "environ": environ}
    with recording_fakes(run) as (port, seen), running_nginx(run, port, **options) as site:
        yield Rig(site, seen, run)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def embedded() -> Iterator[Rig]:
    with rig("embedded", has_hooks=False, is_embedded=True, SAGEMAKER_MAX_PAYLOAD_IN_MB="20") as made:
        yield made


@pytest.fixture(scope="module")
def hooked() -> Iterator[Rig]:
    with rig("hooked", has_hooks=True, is_embedded=True, SAGEMAKER_MAX_PAYLOAD_IN_MB="20") as made:
        yield made


@pytest.fixture(scope="module")
def external() -> Iterator[Rig]:
    with rig("external", has_hooks=False, is_embedded=False, SAGEMAKER_MAX_PAYLOAD_IN_MB="20") as made:
        yield made


@pytest.fixture(scope="module")
def blocking() -> Iterator[Rig]:
    """Workers that serve one client at a time."""
    environ = {"SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}
    with rig("blocking", has_hooks=True, is_embedded=True, **environ) as made:
        yield made


@pytest.fixture(params=["embedded", "hooked", "external"])
def limited(request: pytest.FixtureRequest) -> Rig:
    made = request.getfixturevalue(request.param)
    assert isinstance(made, Rig)
    made.seen.clear()
    return made


def read_answer(connection: socket.socket) -> tuple[int, str, bytes]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.headers.get("Content-Type", ""), response.read()


def chunks(size: int) -> Iterator[bytes]:
    """Yield a chunked body of that many bytes."""
    while size > 0:
        piece = PIECE[: min(size, len(PIECE))]
        size -= len(piece)
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def pieces(size: int) -> Iterator[bytes]:
    while size > 0:
        yield PIECE[: min(size, len(PIECE))]
        size -= len(PIECE)


def is_readable_413(connection: socket.socket) -> bool:
    status, content_type, body = read_answer(connection)
    return (status, content_type) == (413, "application/json") and b"SAGEMAKER_MAX_PAYLOAD_IN_MB" in body


@pytest.mark.parametrize("size", [0, 1, 4_999_999, 5_000_000, LIMIT])
def test_bodies_up_to_the_limit_arrive_whole(limited: Rig, size: int) -> None:
    for head, parts in (
        (HEAD + b"Content-Length: %d\r\n\r\n" % size, pieces(size)),
        (CHUNKED, chunks(size)),
    ):
        with limited.connection() as connection:
            connection.sendall(head)
            for part in parts:
                connection.sendall(part)
            status, _, _ = read_answer(connection)

        assert status == 200
        assert limited.seen[-1].length == size


@pytest.mark.parametrize("excess", [1, 60 * MEGABYTE])
def test_a_client_that_sends_on_can_read_the_refusal(limited: Rig, excess: int) -> None:
    for head, parts in (
        (HEAD + b"Content-Length: %d\r\n\r\n" % (LIMIT + excess), pieces(LIMIT + excess)),
        (CHUNKED, chunks(LIMIT + excess)),
    ):
        with limited.connection() as connection:
            connection.sendall(head)
            for part in parts:
                connection.sendall(part)

            assert is_readable_413(connection)

    assert not [each for each in limited.seen if each.length is not None]


def test_a_client_that_asks_first_is_refused_without_sending(limited: Rig) -> None:
    with limited.connection() as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 1))

        assert is_readable_413(connection)


@pytest.mark.parametrize("size", [10, 6_000_000])
def test_a_client_that_asks_first_is_told_to_go_on(limited: Rig, size: int) -> None:
    with limited.connection() as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)

        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        for part in pieces(size):
            connection.sendall(part)
        assert read_answer(connection)[0] == 200


@pytest.mark.parametrize("size", [4_000_000, 15_000_000])
def test_no_file_is_made_for_a_body(limited: Rig, size: int) -> None:
    with limited.connection() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        sent = 0
        for part in pieces(size - 10):
            connection.sendall(part)
            sent += len(part)
        files = limited.spooled()
        connection.sendall(b"x" * (size - sent))

        assert read_answer(connection)[0] == 200
    assert files == []


@pytest.mark.parametrize("size", [4_000_000, 15_000_000])
def test_a_client_that_goes_away_leaves_nothing(limited: Rig, size: int) -> None:
    with limited.connection() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        connection.sendall(b"x" * (size // 2))
    answer = limited.site.ask("POST", "/invocations", b"{}")

    assert answer.status == 200
    assert limited.spooled() == []
    assert not [each for each in limited.seen if each.length not in (None, 2)]


def test_a_held_body_that_is_refused_goes_to_the_workers_too(external: Rig) -> None:
    external.seen.clear()

    answer = external.site.ask("POST", "/invocations", REFUSED_BODY, {"Content-Type": "application/json"})

    assert answer.status == 200
    assert external.whole_at() == ["model-server", "workers"]


def test_a_streamed_body_goes_to_the_workers_at_once(external: Rig) -> None:
    external.seen.clear()

    answer = external.site.ask("POST", "/invocations", b" " * 6_000_000)

    assert answer.status == 200
    assert external.whole_at() == ["workers"]


def test_a_blocking_worker_sees_a_body_only_when_it_is_whole(blocking: Rig) -> None:
    """A slow client would keep it from serving others."""
    blocking.seen.clear()
    size = 12_000_000
    with blocking.connection() as slow:
        slow.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        slow.sendall(b"x" * (size - 1))
        assert blocking.site.ask("POST", "/invocations", b"{}").status == 200
        seen = [each.length for each in blocking.seen]
        files = blocking.spooled()
        slow.sendall(b"x")

        assert read_answer(slow)[0] == 200
    assert seen == [2]
    assert files == []


def test_a_body_that_was_sent_is_not_sent_again() -> None:
    """The first server is gone; whatever has taken a request is the only one that sees it."""
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    folder.chmod(0o711)
    run = RunFolder.make(folder / "r")
    with (
        recording_fakes(run) as (port, seen),
        socket.create_server(("127.0.0.1", 0)) as mute,
        running_nginx(
            run, mute.getsockname()[1], port, free_port(), has_hooks=False, is_embedded=True
        ) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection,
    ):
        connection.sendall(HEAD + b"Content-Length: 6000000\r\n\r\n" + b"x" * 1_000_000)
        taken, _ = mute.accept()
        taken.recv(1)
        taken.close()
        status, content_type, _ = read_answer(connection)

    assert (status, content_type) == (502, "application/json")
    assert seen == []
    shutil.rmtree(folder)
