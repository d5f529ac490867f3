"""The real nginx between a test and small fakes of all that is behind it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import http.server
import json
import signal
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pierhead.control import ServerAddress
from pierhead.settings import Settings
from pierhead.supervisor.binaries import find_nginx
from pierhead.supervisor.nginx_config import find_template, render_nginx_config
from pierhead.supervisor.run_folder import RunFolder

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
JSON = {"Content-Type": "application/json"}
REFUSED_BODY = b"refuse me"
SLOW_BODY = b"never answer"
STEERING_BODY = b"steer nginx"
STEERING = (
    ("X-Accel-Redirect", "/errors/500"),
    ("X-Accel-Limit-Rate", "1"),
    ("X-Accel-Charset", "utf-7"),
    ("X-Request-Id", "mine"),
)
LONGEST_ECHO = 1 << 16


@dataclass(frozen=True)
class Seen:
    """A request that came to a fake; `length` is None where its body was cut short."""

    name: str
    path: str
    length: int | None


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked, as JSON."""

    protocol_version = "HTTP/1.1"
    server: TcpFake | UnixFake

    def answer(self) -> None:
        try:
            body = self._body()
        except (OSError, ValueError):
            self.server.seen.append(Seen(self.server.name, self.path, None))
            self.close_connection = True
            return
        self.server.seen.append(Seen(self.server.name, self.path, len(body)))
        if body == SLOW_BODY:
            self.server.released.wait(30)
            self.close_connection = True
            return
        refused = body == REFUSED_BODY and self.server.name == "model-server"
        content = json.dumps(
            {
                "error": "refused by the model server" if refused else None,
                "upstream": self.server.name,
                "line": f"{self.command} {self.path}",
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": body.decode() if len(body) <= LONGEST_ECHO else None,
                "length": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
            }
        ).encode()
        self.send_response(400 if refused else 200)
        self.send_header("Content-Type", "application/json")
        for name, value in STEERING if body == STEERING_BODY else ():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        """Return the whole body; raise OSError or ValueError where it ends early."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return b"".join(self._chunks())
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            raise OSError("the body is cut short")
        return body

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815

    def address_string(self) -> str:
        return "nginx"

    def log_message(self, *_: Any) -> None:
        pass


class TcpFake(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.name, self.released = name, threading.Event()
        self.seen: list[Seen] = []

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])


class UnixFake(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(str(path), Echo)
        path.chmod(0o666)
        self.name, self.released = name, threading.Event()
        self.seen: list[Seen] = []


Fake = TypeVar("Fake", TcpFake, UnixFake)


@contextlib.contextmanager
def serving(server: Fake) -> Iterator[Fake]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Site:
    """An nginx that runs."""

    port: int

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, fields, response.read())

    def invoke(self, attributes: str | None = None, **headers: str) -> Answer:
        own = {} if attributes is None else {ATTRIBUTES: attributes}
        return self.ask("POST", "/invocations", b'{"instances": [1]}', {**JSON, **own, **headers})

    def send_raw(self, data: bytes) -> Answer:
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(data)
            response = http.client.HTTPResponse(connection)
            response.begin()
            fields = {name.lower(): value for name, value in response.getheaders()}
            with contextlib.closing(response):
                return Answer(response.status, fields, response.read())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    pause = threading.Event()
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, "nginx ended at once"
        pause.wait(0.01)
    raise AssertionError("nginx does not listen")


@contextlib.contextmanager
def running_nginx(run: RunFolder, *rest_ports: int, **options: Any) -> Iterator[Site]:
    """Run nginx on a free port until the end of the block."""
    port = free_port()
    environ = {"SAGEMAKER_BIND_TO_PORT": str(port), **options.pop("environ", {})}
    text = render_nginx_config(
        find_template(),
        Settings.from_env(environ),
        run=run,
        servers=[ServerAddress(1, rest_port) for rest_port in rest_ports],
        default_model=options.pop("default_model", "a"),
        **options,
    )
    run.nginx_config.write_text(text)
    command = [find_nginx(), "-p", f"{run.nginx}/", "-c", str(run.nginx_config), "-e", "stderr"]
    with (run.path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until_it_listens(port, process)
        yield Site(port)
    finally:
        process.send_signal(signal.SIGQUIT)
        assert process.wait(timeout=20) == 0


@contextlib.contextmanager
def fakes(run: RunFolder) -> Iterator[int]:
    """Serve everything behind nginx; yield the model server's port."""
    with recording_fakes(run) as (port, _):
        yield port


@contextlib.contextmanager
def recording_fakes(run: RunFolder) -> Iterator[tuple[int, list[Seen]]]:
    """Serve everything behind nginx; yield the model server's port, and what comes to it and the workers."""
    with (
        serving(TcpFake("model-server")) as model_server,
        serving(UnixFake("workers", run.workers_socket)) as workers,
        serving(UnixFake("health", run.health_socket)),
    ):
        workers.seen = model_server.seen
        yield model_server.port, model_server.seen
