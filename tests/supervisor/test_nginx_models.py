"""The real nginx of a multi-model endpoint, between its clients and small fakes of workers and models."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.supervisor.nginx_site import ATTRIBUTES, JSON, Answer, Site, UnixFake, running_nginx, serving

from pierhead.contract.headers import TARGET_MODEL
from pierhead.errors import Code, PierheadError, ServingError
from pierhead.supervisor.events import LoadRequested, UnloadRequested
from pierhead.supervisor.models.door import ModelsDoor
from pierhead.supervisor.models.publication import LONGEST_DIRECT_NAME, Publication
from pierhead.supervisor.models.table import ModelTable
from pierhead.supervisor.run_folder import RunFolder

HEX = 32 * "0f"
FIRST_LONG = LONGEST_DIRECT_NAME + 1
LONG = 255 * "n"
LARGE = bytes(range(256)) * 24 * 1024  # 6 MB: more than nginx holds of an answerable body
MULTI_MODEL = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "8"}


class FixedTable(ModelTable):
    """Says that some models are loaded."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.urls = urls

    def loaded(self) -> dict[str, str]:
        return dict(self.urls)


class MultiModelSite:
    """An nginx, the supervisor's door, shared workers, and models that a test publishes."""

    def __init__(self, site: Site, run: RunFolder) -> None:
        self.site, self.run = site, run
        self.publication = Publication(run)
        self.number = 0

    @contextlib.contextmanager
    def model(self, name: str, servers: int = 1) -> Iterator[None]:
        """Have a model with sockets that say `NAME-0` and so on, while the block lasts."""
        self.number += 1
        folder = self.publication.make_folder(self.number)
        with contextlib.ExitStack() as stack:
            for number in range(servers):
                fake = UnixFake(f"{name[:8]}-{number}", folder / f"{number}.sock")
                stack.enter_context(serving(fake))
            self.publication.publish(name, self.number)
            self.publication.open_direct(name, self.number)
            yield
            self.publication.withdraw(name)

    def invoke(
        self, name: str, body: bytes = b"{}", query: str = "", headers: Mapping[str, str] | None = None
    ) -> Answer:
        return self.site.ask("POST", f"/models/{name}/invoke{query}", body, {**JSON, **(headers or {})})

    def send_chunks(self, name: str, *chunks: bytes) -> Answer:
        """Invoke with a body of no known length."""
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("POST", f"/models/{name}/invoke", iter(chunks), JSON, encode_chunked=True)
            response = connection.getresponse()
            return Answer(response.status, {}, response.read())


def judge(request: LoadRequested | UnloadRequested) -> None:
    """Answer as a table would: what is called `full` finds no memory."""
    refusal: PierheadError | None = None
    if request.name == "full":
        refusal = ServingError(Code.RESOURCE_EXHAUSTED, "no memory")
    request.answer(refusal)


@contextlib.contextmanager
def multi_model_site(folder: Path, **environ: str) -> Iterator[MultiModelSite]:
    run = RunFolder.make(folder)
    run.make_model_folders()
    table = FixedTable({"a": "/opt/ml/models/a/model", "b": "/opt/ml/models/b/model"})
    door = ModelsDoor(run.models_socket, table, Publication(run), judge, 10.0)
    door.open()
    options = {"has_hooks": False, "is_embedded": True, "environ": {**MULTI_MODEL, **environ}}
    with (
        contextlib.closing(door),
        serving(UnixFake("workers", run.workers_socket)),
        serving(UnixFake("health", run.health_socket)),
        running_nginx(run, **options) as site,
    ):
        yield MultiModelSite(site, run)


@pytest.fixture(scope="module")
def models(module_folder: Path) -> Iterator[MultiModelSite]:
    with multi_model_site(module_folder / "one") as site:
        yield site


@pytest.fixture(scope="module")
def pairs(module_folder: Path) -> Iterator[MultiModelSite]:
    """An endpoint with two servers for each model."""
    with multi_model_site(module_folder / "two", SAGEMAKER_TFS_INSTANCE_COUNT="2") as site:
        yield site


@pytest.fixture(scope="module")
def deserted(module_folder: Path) -> Iterator[MultiModelSite]:
    """An nginx with nothing behind it."""
    run = RunFolder.make(module_folder / "deserted")
    run.make_model_folders()
    with running_nginx(run, has_hooks=False, is_embedded=True, environ=MULTI_MODEL) as site:
        yield MultiModelSite(site, run)


def assert_is_json_error(statuses: set[int], answer: Answer) -> None:
    assert answer.status in statuses, answer
    assert answer.headers["content-type"] == "application/json"
    assert isinstance(answer.json["error"], str)
    assert "x-request-id" in answer.headers
    assert "/tmp/" not in answer.json["error"]


# Which way an invocation goes.

NAMES = (
    "a",
    "0",
    HEX,
    "A.b_c-1",
    "a..",
    LONGEST_DIRECT_NAME * "n",
    FIRST_LONG * "n",
    LONG,
)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name[:8]}-{len(name)}")
def test_invocation_goes_to_the_sockets_of_the_model_while_its_link_is_there(
    models: MultiModelSite, name: str
) -> None:
    before = models.invoke(name)
    with models.model(name):
        during = models.invoke(name)
    after = models.invoke(name)

    assert ["workers", f"POST /models/{name}/invoke"] == [before.json["upstream"], before.json["line"]]
    assert [f"{name[:8]}-0", "POST /invocations"] == [during.json["upstream"], during.json["line"]]
    assert ["workers", f"POST /models/{name}/invoke"] == [after.json["upstream"], after.json["line"]]


def test_choice_follows_the_link_in_one_connection(models: MultiModelSite) -> None:
    """No reload, and no memory of nginx's, is between the link and the next request."""
    seen = []
    with models.model("a"):
        for _ in range(20):
            models.publication.close_direct("a")
            seen.append(models.invoke("a").json["upstream"])
            models.publication.open_direct("a", models.number)
            seen.append(models.invoke("a").json["upstream"])

    assert seen == 20 * ["workers", "a-0"]


@pytest.mark.parametrize("name", ["a", LONG], ids=["short", "long"])
def test_model_that_was_loaded_anew_answers_for_itself(models: MultiModelSite, name: str) -> None:
    for _ in range(2):
        with models.model(name):
            assert models.invoke(name).json["upstream"] == f"{name[:8]}-0"


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "shared"])
@pytest.mark.parametrize("name", ["a", LONG], ids=["short", "long"])
@pytest.mark.parametrize("size", [2, 200_000, len(LARGE)])
def test_bodies_arrive_whole_on_each_way(
    models: MultiModelSite, name: str, is_direct: bool, size: int
) -> None:
    body = LARGE[:size]
    chunks = [body[start : start + 65_536] for start in range(0, size, 65_536)]
    with models.model(name) if is_direct else contextlib.nullcontext():
        answers = [models.invoke(name, body), models.send_chunks(name, *chunks)]

    for answer in answers:
        assert answer.json["upstream"] == (f"{name[:8]}-0" if is_direct else "workers")
        assert answer.json["sha256"] == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "shared"])
@pytest.mark.parametrize("name", ["a", LONG], ids=["short", "long"])
def test_body_beyond_the_limit_is_refused_on_each_way(
    models: MultiModelSite, name: str, is_direct: bool
) -> None:
    with models.model(name) if is_direct else contextlib.nullcontext():
        answer = models.invoke(name, LARGE + LARGE)

    assert_is_json_error({413}, answer)
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in answer.json["error"]


@pytest.mark.parametrize("name", ["a", LONG], ids=["short", "long"])
@pytest.mark.parametrize("target", ["b", "team/b.tar.gz", "../b", "", 9 * "x" + "\t"])
def test_target_model_never_changes_the_way(models: MultiModelSite, name: str, target: str) -> None:
    with models.model(name), models.model("b"):
        assert models.invoke(name, headers={TARGET_MODEL: target}).json["upstream"] == f"{name[:8]}-0"
    assert models.invoke(name, headers={TARGET_MODEL: target}).json["line"] == f"POST /models/{name}/invoke"


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "shared"])
@pytest.mark.parametrize("name", ["a", LONG], ids=["short", "long"])
def test_headers_pass_but_nobody_says_the_request_id(
    models: MultiModelSite, name: str, is_direct: bool
) -> None:
    sent = {ATTRIBUTES: "tfs-model-name=b", "X-Request-Id": "mine", "X-Pierhead-Model-Number": "7"}
    with models.model(name) if is_direct else contextlib.nullcontext():
        answer = models.invoke(name, headers=sent)

    assert answer.json["headers"][ATTRIBUTES.lower()] == "tfs-model-name=b"
    assert answer.json["headers"]["x-request-id"] == answer.headers["x-request-id"] != "mine"


@pytest.mark.parametrize("name", ["a", HEX, LONG], ids=["short", "hex", "long"])
def test_two_servers_of_a_model_share_the_requests(pairs: MultiModelSite, name: str) -> None:
    with pairs.model(name, servers=2):
        seen = {pairs.invoke(name).json["upstream"] for _ in range(60)}

    assert {f"{name[:8]}-0", f"{name[:8]}-1"} == seen


# Paths.


def test_query_passes_to_the_list_alone(models: MultiModelSite) -> None:
    assert [models.site.ask("GET", "/models?limit=1").json["nextPageToken"]] == ["a"]
    assert models.site.ask("GET", "/models/a?limit=0").status == 200
    with models.model("a"):
        assert models.invoke("a", query="?x=1").json["line"] == "POST /invocations"
    assert models.invoke("a", query="?x=/../b").json["line"] == "POST /models/a/invoke"
    with models.model(LONG):
        assert models.invoke(LONG, query="?x=1").json["line"] == "POST /invocations"
    assert models.invoke(LONG, query="?x=1").json["line"] == f"POST /models/{LONG}/invoke"


BAD_NAMES = (
    ".a",
    "-a",
    "_a",
    "..",
    "a b",
    "a%20b",
    "a$b",
    "$target",
    "%2e%2e",
    "a%2fb",
    "a%00",
    "a%0a",
    "a%0d%0aX:%201",
    "%ff",
    "ä",
    "a;b",
    "a:b",
    "unix:",
    256 * "n",
    4000 * "n",
)


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: f"{name[:8]!a}-{len(name)}")
def test_bad_name_reaches_neither_model_nor_workers(models: MultiModelSite, name: str) -> None:
    head = b"POST /models/" + name.encode() + b"/invoke HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

    assert_is_json_error({400, 404, 405}, models.site.send_raw(head))


HOSTILE_PATHS = (
    "/models/../x",
    "/models/a/../../etc/passwd",
    "/models/%2e%2e/loaded/a/invoke",
    "/models/%2e%2e%2f%2e%2e%2fhealth.sock/invoke",
    "/models/..%2f..%2fworkers.json/invoke",
    "/models/a%00/invoke",
    "/models/a/invoke%00",
    "/models/a/invoke%0a",
    "/models/a%0ab/invoke",
    "/models/a/invoke/",
    "/models/a/invoke/x",
    "/models//invoke",
    "/models/",
    "/direct/a/0.sock",
    "/direct/a",
    "/loaded/a/plan.json",
    "/number",
    "/shared",
    "/streamed",
    "/shared-streamed",
    "/errors/load-order",
    "/errors/503",
    "/@shared",
    "/invocations",
    "/modelsx",
)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_hostile_path_is_refused_as_json(models: MultiModelSite, path: str, method: str) -> None:
    with models.model("a"):
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        answer = models.site.send_raw(head)

    assert_is_json_error({400, 404, 405}, answer)


@pytest.mark.parametrize(
    "path",
    ["/models", "//models", "/%6dodels", "/x/../models", "/direct/../models", "/direct/a/../../models"],
)
def test_each_spelling_of_the_list_is_the_list(models: MultiModelSite, path: str) -> None:
    answer = models.site.send_raw(f"GET {path}?limit=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    assert answer.status == 200
    assert answer.json == {
        "models": [{"modelName": "a", "modelUrl": "/opt/ml/models/a/model"}],
        "nextPageToken": "a",
    }


@pytest.mark.parametrize(
    "path", ["//models//a//invoke", "/models/%61/invoke", "/models/./a/invoke", "/x/../models/a/invoke"]
)
def test_each_spelling_of_a_path_is_one_path(models: MultiModelSite, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()

    with models.model("a"):
        assert models.site.send_raw(head).json["upstream"] == "a-0"
    assert models.site.send_raw(head).json["line"] == "POST /models/a/invoke"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *((method, "/models/a/invoke") for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "PROPFIND")),
        *((method, f"/models/{LONG}/invoke") for method in ("GET", "DELETE", "PROPFIND")),
        *((method, "/models") for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "TRACE")),
        *((method, "/models/a") for method in ("PUT", "POST", "PATCH", "OPTIONS", "PROPFIND", "X-Y")),
    ],
)
def test_other_methods_are_refused_as_json(models: MultiModelSite, method: str, path: str) -> None:
    answer = models.site.ask(method, path)

    assert answer.status in (405, 501)
    assert answer.headers["content-type"] == "application/json"
    if method != "HEAD":
        assert isinstance(answer.json["error"], str)


@pytest.mark.parametrize("path", ["/models", "/models/a"])
def test_head_is_a_get_without_its_body(models: MultiModelSite, path: str) -> None:
    answer = models.site.ask("HEAD", path)

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"


# Loads.


@pytest.mark.parametrize("is_chunked", [True, False])
def test_load_order_passes_with_and_without_a_length(models: MultiModelSite, is_chunked: bool) -> None:
    order = b'{"model_name": "c", "url": "/opt/ml/models/c/model"}'
    length = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(order) if is_chunked else b""
    end = b"\r\n0\r\n\r\n" if is_chunked else b""
    length = length or b"Content-Length: %d\r\n\r\n" % len(order)

    answer = models.site.send_raw(b"POST /models HTTP/1.1\r\nHost: x\r\n" + length + order + end)

    assert answer.status == 200
    assert answer.json == {"modelName": "c", "modelUrl": "/opt/ml/models/c/model"}


def test_load_that_finds_no_memory_is_507(models: MultiModelSite) -> None:
    answer = models.site.ask("POST", "/models", b'{"model_name": "full", "url": "/opt/ml/models/full"}')

    assert_is_json_error({507}, answer)


@pytest.mark.parametrize("is_chunked", [True, False])
def test_load_order_beyond_64_kb_is_refused(models: MultiModelSite, is_chunked: bool) -> None:
    body = b'{"model_name": "c", "url": "/' + (1 << 16) * b"x" + b'"}'
    length = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) if is_chunked else b""
    length = length or b"Content-Length: %d\r\n\r\n" % len(body)

    answer = models.site.send_raw(b"POST /models HTTP/1.1\r\nHost: x\r\n" + length + body + b"\r\n0\r\n\r\n")

    assert_is_json_error({413}, answer)
    assert "64 kB" in answer.json["error"]


def test_many_headers_are_refused_as_json(models: MultiModelSite) -> None:
    """Python's server takes a hundred."""
    headers = "".join(f"X-H-{number}: 1\r\n" for number in range(150))

    answer = models.site.send_raw(f"GET /models HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())

    assert_is_json_error({431}, answer)


# What is away.


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/models"), ("DELETE", "/models/a"), ("POST", "/models/a/invoke")],
)
def test_whatever_is_away_is_503(deserted: MultiModelSite, method: str, path: str) -> None:
    assert_is_json_error({503}, deserted.site.ask(method, path))


@pytest.mark.parametrize("name", ["a", LONG], ids=["short", "long"])
def test_model_whose_socket_is_gone_is_503(models: MultiModelSite, name: str) -> None:
    with models.model(name):
        pass
    folder = models.publication.make_folder(900 + len(name))
    models.publication.open_direct(name, int(folder.name))
    try:
        assert_is_json_error({503}, models.invoke(name))
    finally:
        models.publication.close_direct(name)


# Desynchronized connections.


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/models/-bad/invoke"),
        ("POST", "/models/a"),
        ("PUT", "/models"),
        ("GET", "/models"),
        ("DELETE", "/models/a"),
    ],
)
def test_body_that_nobody_asked_for_is_not_the_next_request(
    models: MultiModelSite, method: str, path: str
) -> None:
    """Many requests come to the supervisor through one connection."""
    smuggled = b"GET /models/nope HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(5):
        models.site.ask(method, path, smuggled)

        assert models.site.ask("GET", "/models").status == 200
