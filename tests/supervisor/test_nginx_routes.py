"""The real nginx in front of small fakes of what is behind it: which request goes where, and every error."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.supervisor.nginx_site import (
    ATTRIBUTES,
    JSON,
    REFUSED_BODY,
    SLOW_BODY,
    STEERING_BODY,
    Answer,
    Site,
    fakes,
    free_port,
    running_nginx,
)

from pierhead.supervisor.binaries import find_nginx
from pierhead.supervisor.run_folder import RunFolder


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
    ("tfs-model-version-label=stable", "a/labels/stable:predict"),
    ("tfs-method=regress, tfs-model-version-label = canary,tfs-model-name=b", "b/labels/canary:regress"),
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
    "tfs-model-version-labels=3",
    "tfs-model-version-label=",
    "tfs-model-version-label=a/b",
    "tfs-model-version-label=a:predict",
    "tfs-model-version-label=x,tfs-model-version-label=x",
    "tfs-model-version-label=x,tfs-model-version=1",
    "tfs-model-version=1,tfs-model-version-label=x",
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
        any_site.invoke(**{"X-Request-Id": "mine"}).json["headers"]["x-request-id"] for _ in range(2)
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


@pytest.mark.parametrize("header", [b"X-Long: " + 40_000 * b"x", b"\r\n".join([b"X: " + 100 * b"x"] * 400)])
def test_too_large_header_is_refused(header: bytes, embedded: Site) -> None:
    request = b"GET /ping HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n"

    assert_is_json_error(431, embedded.send_raw(request))


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


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PATCH", "PROPFIND", "PRI", "X", "HEAD"])
@pytest.mark.parametrize("path", ["/invocations", "/ping", "/execution-parameters", "/nothing"])
def test_methods_that_are_not_known_are_refused(method: str, path: str, embedded: Site) -> None:
    answer = embedded.ask(method, path)

    if method == "HEAD":
        assert answer.body == b""
        assert answer.status == {"/invocations": 405, "/nothing": 404}.get(path, 200)
    else:
        assert_is_json_error(404 if path == "/nothing" and method != "TRACE" else 405, answer)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://elsewhere/invocations", 200),
        ("//invocations", 200),
        ("/%69nvocations", 200),
        ("/ping/../invocations", 200),
        ("/invocations?x=/../ping", 200),
        ("/invocations/", 404),
        ("/Invocations", 404),
        ("/invocations%2f", 404),
        ("/invocations%3Fx", 404),
        ("/invocations;x", 404),
        ("/..;/invocations", 404),
        ("/streamed", 404),
        ("/errors/500", 404),
        ("/invocations/v1/models/a:predict", 404),
        ("/v1/models/a:predict", 404),
        ("/invocations%00", 400),
        ("/../invocations", 400),
        ("/%", 400),
        ("invocations", 400),
        ("*", 400),
    ],
)
def test_a_path_is_what_it_means(target: str, status: int, embedded: Site) -> None:
    """What nginx forwards is always a path that it wrote itself."""
    answer = embedded.send_raw(
        f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode()
    )

    if status == 200:
        assert answer.json["line"] == "POST /invocations/v1/models/a:predict"
    else:
        assert_is_json_error(status, answer)


def test_execution_parameters_are_json(any_site: Site) -> None:
    answer = any_site.ask("GET", "/execution-parameters")

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json.keys() == {"MaxConcurrentTransforms", "BatchStrategy", "MaxPayloadInMB"}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\n\r\n", 400),
        (b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello of TLS", 400),
    ],
)
def test_what_is_not_http_is_refused_in_json(data: bytes, status: int, embedded: Site) -> None:
    assert_is_json_error(status, embedded.send_raw(data))


@pytest.mark.parametrize(
    "data",
    [
        b"GET /ping HTTP/1.0\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_older_and_newer_protocols_are_answered_as_http(data: bytes, embedded: Site) -> None:
    assert embedded.send_raw(data).json["line"] == "GET /ping"


def test_answers_do_not_steer_nginx(any_site: Site) -> None:
    answer = any_site.ask("POST", "/invocations", STEERING_BODY, JSON)

    assert answer.status == 200
    assert answer.json["length"] == len(STEERING_BODY)
    assert not [name for name in answer.headers if name.startswith("x-accel")]
    assert answer.headers["x-request-id"] != "mine"
