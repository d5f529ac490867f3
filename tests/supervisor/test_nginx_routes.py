"""The real nginx in front of small fakes of what is behind it: which request goes where, and every error."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pierhead.control import ServerAddress
from pierhead.settings import Settings
from pierhead.supervisor.binaries import find_nginx
from pierhead.supervisor.nginx_config import find_template, render_nginx_config
from pierhead.supervisor.run_folder import RunFolder

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
JSON = {"Content-Type": "application/json"}
REFUSED_BODY = b"refuse me"
SLOW_BODY = b"never answer"


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked, as JSON."""

    protocol_version = "HTTP/1.1"
    server: TcpFake | UnixFake

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
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
                "body": body.decode(),
            }
        ).encode()
        self.send_response(400 if refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

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
    with (
        serving(TcpFake("model-server")) as model_server,
        serving(UnixFake("workers", run.workers_socket)),
        serving(UnixFake("health", run.health_socket)),
    ):
        yield model_server.port


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def embedded(module_folder: Path) -> Iterator[Site]:
    run = RunFolder.make(module_folder / "embedded")
    environ = {
        "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "1",
        "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "1",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1",
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": 'text/csv;note="x"',
    }
    with (
        fakes(run) as port,
        running_nginx(run, port, has_hooks=False, is_embedded=True, environ=environ) as site,
    ):
        yield site


@pytest.fixture(scope="module")
def external(module_folder: Path) -> Iterator[Site]:
    """tensorflow_model_server behind nginx, which reads and writes JSON alone."""
    run = RunFolder.make(module_folder / "external")
    environ = {
        "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "1",
        "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "1",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1",
    }
    with (
        fakes(run) as port,
        running_nginx(run, port, has_hooks=False, is_embedded=False, environ=environ) as site,
    ):
        yield site


@pytest.fixture(scope="module")
def hooked(module_folder: Path) -> Iterator[Site]:
    run = RunFolder.make(module_folder / "hooked")
    with fakes(run) as port, running_nginx(run, port, has_hooks=True, is_embedded=True) as site:
        yield site


@pytest.fixture(scope="module")
def deserted(module_folder: Path) -> Iterator[Site]:
    """An nginx with nothing behind it."""
    run = RunFolder.make(module_folder / "deserted")
    with running_nginx(run, free_port(), has_hooks=False, is_embedded=False) as site:
        yield site


@pytest.fixture(params=["embedded", "external", "hooked"])
def any_site(request: pytest.FixtureRequest) -> Site:
    site = request.getfixturevalue(request.param)
    assert isinstance(site, Site)
    return site


def assert_is_json_error(status: int, answer: Answer) -> None:
    assert status == answer.status
    assert answer.headers["content-type"] == "application/json"
    assert isinstance(answer.json["error"], str)
    assert answer.json["error"]


DIRECT = (
    (None, "a:predict"),
    ("", "a:predict"),
    ("tfs-model-name=b", "b:predict"),
    ("tfs-model-name=b,tfs-model-version=1", "b/versions/1:predict"),
    ("tfs-model-version=1,tfs-model-name=b", "b/versions/1:predict"),
    ("tfs-model-version=2", "a/versions/2:predict"),
    ("tfs-method=predict", "a:predict"),
    ("tfs-method=classify", "a:classify"),
    ("tfs-method=regress", "a:regress"),
    ("tfs-model-name=b,tfs-model-version=1,tfs-method=classify", "b/versions/1:classify"),
    (" tfs-model-name = b ", "b:predict"),
    ("x=1 , tfs-model-name\t=\tb , y=2", "b:predict"),
    ("foo,=,a=b=c", "a:predict"),
    ("tfs-model-name=nope", "nope:predict"),
    ("tfs-model-name=A.b_c-1", "A.b_c-1:predict"),
    ("trace=7;tfs", "a:predict"),
    ("tfs-model-name=" + 255 * "m", 255 * "m" + ":predict"),
)
JUDGED_BY_THE_WORKERS = (
    "tfs-method=delete",
    "tfs-method=",
    "tfs-method=Predict",
    "tfs-method=classify,tfs-method=regress",
    "tfs-model-name=",
    "tfs-model-name",
    "tfs-model-name=../x",
    "tfs-model-name=a/b",
    "tfs-model-name=%2e%2e",
    "tfs-model-name=.b",
    'tfs-model-name="b"',
    "tfs-model-name=b c",
    "tfs-model-name=b?x",
    "tfs-model-name=b:classify",
    "tfs-model-name=!",
    "tfs-model-name=$model_path",
    "tfs-model-name=" + 256 * "m",
    "tfs-model-name=a,tfs-model-name=b",
    "tfs-model-name=b,tfs-model-name=b",
    "my-tfs-model-name=b",
    "tfs-model-version=x",
    "tfs-model-version=-1",
    "tfs-model-version=1.0",
    "tfs-model-version=",
    "tfs-model-version=9999999999999999999",
    "tfs-model-version=1,tfs-model-version=2",
    "foo=tfs-method=classify",
)


@pytest.mark.parametrize(("attributes", "path"), DIRECT)
def test_attributes_choose_the_path_of_the_embedded_server(
    attributes: str | None, path: str, embedded: Site
) -> None:
    answer = embedded.invoke(attributes)

    assert answer.status == 200
    assert answer.json["upstream"] == "model-server"
    assert f"POST /invocations/v1/models/{path}" == answer.json["line"]
    assert answer.json["body"] == '{"instances": [1]}'


@pytest.mark.parametrize(("attributes", "path"), DIRECT)
def test_attributes_choose_the_path_of_the_external_server(
    attributes: str | None, path: str, external: Site
) -> None:
    answer = external.invoke(attributes)

    assert answer.json["upstream"] == "model-server"
    assert f"POST /v1/models/{path}" == answer.json["line"]


@pytest.mark.parametrize("attributes", JUDGED_BY_THE_WORKERS)
@pytest.mark.parametrize("site_name", ["embedded", "external"])
def test_attributes_that_need_a_judge_go_to_the_workers(
    attributes: str, site_name: str, request: pytest.FixtureRequest
) -> None:
    answer = request.getfixturevalue(site_name).invoke(attributes)

    assert answer.json["upstream"] == "workers"
    assert answer.json["line"] == "POST /invocations"
    assert attributes == answer.json["headers"][ATTRIBUTES.lower()]
    assert answer.json["body"] == '{"instances": [1]}'


@pytest.mark.parametrize("attributes", [None, "tfs-model-name=b", "tfs-method=delete"])
def test_hooks_get_every_request(attributes: str | None, hooked: Site) -> None:
    answer = hooked.invoke(attributes)

    assert answer.json["upstream"] == "workers"
    assert answer.json["line"] == "POST /invocations"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/csv"},
        {"Content-Type": "application/jsonlines"},
        {"Content-Type": "application/jsons"},
        {"Content-Type": "application/x-npy"},
        {"Accept": "application/jsonlines"},
        {"Accept": "text/csv, application/json"},
    ],
)
def test_types_that_the_external_server_cannot_handle_go_to_the_workers(
    headers: dict[str, str], external: Site
) -> None:
    assert external.invoke(**headers).json["upstream"] == "workers"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json; charset=utf-8"},
        {"Content-Type": "Application/JSON"},
        {"Accept": "application/json"},
        {"Accept": "application/*"},
        {"Accept": "*/*"},
    ],
)
def test_json_goes_straight_to_the_external_server(headers: dict[str, str], external: Site) -> None:
    assert external.invoke(**headers).json["upstream"] == "model-server"


@pytest.mark.parametrize("headers", [{"Content-Type": "text/csv"}, {"Accept": "application/jsonlines"}])
def test_embedded_server_takes_every_type(headers: dict[str, str], embedded: Site) -> None:
    assert embedded.invoke(**headers).json["upstream"] == "model-server"


def test_request_that_the_external_server_refuses_goes_to_the_workers_whole(external: Site) -> None:
    answer = external.ask("POST", "/invocations", REFUSED_BODY, {**JSON, ATTRIBUTES: "tfs-model-name=b"})

    assert answer.status == 200
    assert answer.json["upstream"] == "workers"
    assert answer.json["line"] == "POST /invocations"
    assert REFUSED_BODY.decode() == answer.json["body"]
    assert answer.json["headers"]["content-type"] == "application/json"
    assert answer.json["headers"][ATTRIBUTES.lower()] == "tfs-model-name=b"


def test_refusal_of_the_embedded_server_reaches_the_client(embedded: Site) -> None:
    answer = embedded.ask("POST", "/invocations", REFUSED_BODY, JSON)

    assert_is_json_error(400, answer)
    assert answer.json["error"] == "refused by the model server"


def test_connect_is_refused(embedded: Site) -> None:
    answer = embedded.send_raw(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n")

    assert answer.status in {400, 405}  # as nginx before 1.23, and since
    assert answer.json["error"]


def nginx_version() -> tuple[int, ...]:
    shown = subprocess.run([find_nginx(), "-v"], capture_output=True, text=True, check=True).stderr
    return tuple(int(number) for number in re.findall(r"nginx/(\d+)\.(\d+)", shown)[0])


@pytest.mark.skipif(nginx_version() < (1, 23), reason="older releases of nginx see the first line alone")
def test_two_lines_of_attributes_count_as_one(embedded: Site) -> None:
    answer = embedded.send_raw(
        b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n"
        b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-name=b\r\n"
        b"X-Amzn-SageMaker-Custom-Attributes: tfs-method=classify\r\n\r\n"
    )

    assert answer.json["line"] == "POST /invocations/v1/models/b:classify"


def test_query_is_not_part_of_the_path(embedded: Site) -> None:
    answer = embedded.ask("POST", "/invocations?x=1", b"{}", JSON)

    assert answer.json["line"] == "POST /invocations/v1/models/a:predict"


def test_default_accept_is_told_to_what_is_behind(any_site: Site, embedded: Site) -> None:
    told = any_site.invoke(**{"X-Pierhead-Default-Accept": "evil/type"}).json["headers"]

    expected = 'text/csv;note="x"' if any_site == embedded else "application/json"
    assert expected == told["x-pierhead-default-accept"]


def test_requests_are_numbered_by_nginx_alone(any_site: Site) -> None:
    first, second = (
        any_site.invoke(**{"X-Pierhead-Request-Id": "mine"}).json["headers"]["x-pierhead-request-id"]
        for _ in range(2)
    )

    assert "mine" not in (first, second)
    assert first != second


def test_default_model_with_any_name_has_a_path(short_folder: Path) -> None:
    short_folder.chmod(0o711)
    run = RunFolder.make(short_folder / "run")
    options: dict[str, Any] = {"has_hooks": False, "is_embedded": True, "default_model": 'é x"$'}
    with fakes(run) as port, running_nginx(run, port, **options) as site:
        answer = site.invoke()

    assert answer.json["line"] == "POST /invocations/v1/models/%C3%A9%20x%22%24:predict"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_ping_goes_to_the_health_socket(method: str, any_site: Site) -> None:
    answer = any_site.ask(method, "/ping")

    assert answer.status == 200
    assert answer.json["upstream"] == "health"
    assert answer.json["line"] == "GET /ping"


def test_ping_takes_head(any_site: Site) -> None:
    answer = any_site.ask("HEAD", "/ping")

    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("path", ["/", "/nothing", "/v1/models/a", "/ping/", "/invocations/x", "/models"])
def test_unknown_path_is_not_found(path: str, any_site: Site) -> None:
    assert_is_json_error(404, any_site.ask("GET", path))


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/invocations"), ("PUT", "/invocations"), ("DELETE", "/invocations"), ("PUT", "/ping")],
)
def test_other_method_is_not_allowed(method: str, path: str, any_site: Site) -> None:
    assert_is_json_error(405, any_site.ask(method, path))


@pytest.mark.parametrize("site_name", ["embedded", "external"])
def test_body_above_the_limit_is_refused(site_name: str, request: pytest.FixtureRequest) -> None:
    answer = request.getfixturevalue(site_name).send_raw(
        b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2000000\r\n\r\n"
    )

    assert_is_json_error(413, answer)
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in answer.json["error"]


@pytest.mark.parametrize("site_name", ["embedded", "external"])
def test_answer_that_does_not_come_is_a_time_out(site_name: str, request: pytest.FixtureRequest) -> None:
    answer = request.getfixturevalue(site_name).ask("POST", "/invocations", SLOW_BODY, JSON)

    assert_is_json_error(504, answer)
    assert "1 s" in answer.json["error"]


@pytest.mark.parametrize(
    "data",
    [
        b"HELLO\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Long: " + 40_000 * b"x" + b"\r\n\r\n",
    ],
)
def test_malformed_request_is_refused(data: bytes, embedded: Site) -> None:
    assert_is_json_error(400, embedded.send_raw(data))


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: gzip", 501),
        (b"GET /ping HTTP/3.0", 505),
        (b"TRACE /ping HTTP/1.1", 405),
    ],
)
def test_request_that_nginx_does_not_support_is_refused(line: bytes, status: int, embedded: Site) -> None:
    assert_is_json_error(status, embedded.send_raw(line + b"\r\nHost: x\r\n\r\n"))


def test_too_long_path_is_refused(embedded: Site) -> None:
    assert_is_json_error(414, embedded.send_raw(b"GET /" + 40_000 * b"x" + b" HTTP/1.1\r\nHost: x\r\n\r\n"))


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/csv"}])
def test_nothing_behind_is_a_bad_gateway(headers: dict[str, str], deserted: Site) -> None:
    assert_is_json_error(502, deserted.invoke(**headers))


def test_ping_with_nothing_behind_is_a_bad_gateway(deserted: Site) -> None:
    assert_is_json_error(502, deserted.ask("GET", "/ping"))


def test_server_that_does_not_listen_is_passed_over(short_folder: Path) -> None:
    short_folder.chmod(0o711)
    run = RunFolder.make(short_folder / "run")
    options: dict[str, Any] = {"has_hooks": False, "is_embedded": True}
    with fakes(run) as port, running_nginx(run, free_port(), port, **options) as site:
        statuses = {site.invoke().status for _ in range(20)}

    assert {200} == statuses


def test_server_that_comes_back_is_used_at_once(short_folder: Path) -> None:
    """No server is shunned for its failures: the first request after a restart succeeds."""
    short_folder.chmod(0o711)
    run = RunFolder.make(short_folder / "run")
    with running_nginx(run, free_port(), has_hooks=True, is_embedded=True) as site:
        failed = [site.invoke().status for _ in range(5)]
        with fakes(run):
            after = site.invoke().status

    assert failed == [502] * 5
    assert after == 200


def test_socket_of_a_dead_worker_is_a_bad_gateway(short_folder: Path) -> None:
    short_folder.chmod(0o711)
    run = RunFolder.make(short_folder / "run")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(run.workers_socket))
    assert os.path.exists(run.workers_socket)
    with running_nginx(run, free_port(), has_hooks=True, is_embedded=True) as site:
        assert_is_json_error(502, site.invoke())
