"""The benchmark's client, on a server that notes what it is asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from benchmarks.load import HttpLoad, run


class Noting(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), NotingHandler)
        self.paths: list[str] = []


class NotingHandler(BaseHTTPRequestHandler):
    server: Noting
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.append(self.path)
        self.send_response(404 if self.path == "/absent" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Noting]:
    with Noting() as noting:
        thread = threading.Thread(target=noting.serve_forever)
        thread.start()
        yield noting
        noting.shutdown()
        thread.join()


def load_of(server: Noting, folder: Path, clients: int, *paths: str) -> HttpLoad:
    body = folder / "body.json"
    body.write_text("{}")
    first, *others = paths
    return HttpLoad(server.server_port, first, str(body), "application/json", clients, 0.1, tuple(others))


def test_paths_take_turns(server: Noting, tmp_path: Path) -> None:
    result = run(load_of(server, tmp_path, 1, "/a", "/b", "/c"))

    assert ["/a", "/b", "/c", "/a"] == server.paths[:4]
    assert result.answers == len(server.paths)


def test_clients_share_the_turns(server: Noting, tmp_path: Path) -> None:
    run(load_of(server, tmp_path, 2, "/a", "/b"))

    assert abs(server.paths.count("/a") - server.paths.count("/b")) <= 1


def test_an_answer_other_than_200_ends_the_load(server: Noting, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="404"):
        run(load_of(server, tmp_path, 1, "/absent"))
