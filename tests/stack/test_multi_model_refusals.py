"""What is not in the contract of `/models` is refused in JSON and changes nothing (C20).

It is nginx and the supervisor that refuse, whatever the model server.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifacts import stub_model
from field_stacks import STUB
from multi_model_stack import ModelsStack, refusal

ENDPOINTS = ((STUB, 1),)
# A path as it is sent; what of it is a name when it is decoded.
HOSTILE_PATHS = (
    "../x",
    "..",
    ".",
    "%2e%2e%2fx",
    "%2e%2e",
    "..%2f..%2fping",
    "a/b",
    "a%2fb",
    "a%22b",
    'a"b',
    "a%0ab",
    "a%0d%0aX-Injected:%201",
    "a%00b",
    "%ff",
    "a%20b",
    "-a",
    "_a",
    "x" * 256,
    "x" * 300,
    "%c3%a4",
    "a;b",
    "$target",
    "{a}",
)
HOSTILE_NAMES = (
    "",
    ".",
    "..",
    "../x",
    "%2e%2e%2fx",
    "a/b",
    'a"b',
    "a\nb",
    "a\n",
    "a\u0000b",
    "a b",
    "ä",
    "-a",
    "_a",
    ".a",
    "x" * 256,
    "x" * 300,
    "a$b",
    "a'b",
    "a\\b",
)

# Requests that need no body, or that are refused before it is read.
CARRIERS = (
    ("GET", "/models"),
    ("GET", "/models/kept"),
    ("GET", "/models/other"),
    ("DELETE", "/models/other"),
    ("DELETE", "/models"),
    ("POST", "/models/kept"),
    ("PUT", "/models"),
    ("OPTIONS", "/models"),
    ("PROPFIND", "/models"),
    ("POST", "/models"),
    ("POST", "/models/other/invoke"),
    ("GET", "/metrics"),
    ("GET", "/ping"),
)


def entries(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nope",
        b"[]",
        b'"a"',
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"model_name": "a"}',
        b'{"url": "/x"}',
        b'{"model_name": "a", "url": null}',
        b'{"model_name": "a", "url": ""}',
        b'{"model_name": 7, "url": "/x"}',
        b'{"model_name": ["a"], "url": "/x"}',
        b'{"model_name": "a", "url": {"path": "/x"}}',
        b"[" * 30_000,
    ],
)
def test_an_order_that_cannot_be_read_is_refused(endpoint: ModelsStack, body: bytes) -> None:
    assert 400 == refusal(endpoint.request("POST", "/models", body))[0]


def test_an_order_that_is_too_long_is_refused(endpoint: ModelsStack) -> None:
    order = json.dumps({"model_name": "a", "url": "/" + "x" * 200_000}).encode()

    assert refusal(endpoint.request("POST", "/models", order))[0] in (400, 413)


def test_urls_that_are_not_inside_the_models_folder_are_refused(models: ModelsStack, tmp_path: Path) -> None:
    root, model = models.models_folder, stub_model(tmp_path / "model")
    (root / "out").symlink_to(model)
    urls = (
        str(model),
        str(root),
        f"{root}/",
        f"{root}/x/..",
        f"{root}/../../../../{model}",
        str(root / "out"),
        f"{root}2",
        "models/a/model",
        "file:///etc",
        "/etc",
        "/proc/self/cwd",
        "/",
        f"{root}/\x00",
    )

    assert dict.fromkeys(urls, 400) == {url: refusal(models.load("x", url))[0] for url in urls}


def test_urls_without_a_model_are_not_found(endpoint: ModelsStack) -> None:
    root = endpoint.models_folder
    (root / "empty").mkdir(exist_ok=True)
    (root / "code-alone" / "code").mkdir(parents=True, exist_ok=True)
    (root / "unversioned" / "m").mkdir(parents=True, exist_ok=True)
    (root / "unversioned" / "m" / "saved_model.pb").write_bytes(b"")
    (root / "file").write_text("no folder")
    (root / "nowhere").unlink(missing_ok=True)
    (root / "nowhere").symlink_to(root / "not" / "there")
    names = ("missing", "empty", "code-alone", "unversioned", "file", "nowhere")

    assert dict.fromkeys(names, 404) == {
        name: refusal(endpoint.load("x", str(root / name)))[0] for name in names
    }


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=repr)
def test_a_hostile_name_in_an_order_makes_nothing(models: ModelsStack, tmp_path: Path, name: str) -> None:
    url = models.lay("hostile", stub_model(tmp_path))
    before = entries(models.folder)

    assert 400 == refusal(models.load(name, url))[0]
    assert before == entries(models.folder)
    assert {} == models.listed()


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_hostile_path_is_answered_in_json_and_makes_nothing(endpoint: ModelsStack, path: str) -> None:
    before = entries(endpoint.folder)

    for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/invoke")):
        status, sentence = refusal(endpoint.request(method, f"/models/{path}{suffix}", b""))
        assert status in (400, 404, 405), (method, path, status, sentence)
    assert before == entries(endpoint.folder)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/models"),
        ("DELETE", "/models"),
        ("PATCH", "/models"),
        ("POST", "/models/a"),
        ("PUT", "/models/a"),
        ("GET", "/models/a/invoke"),
        ("PUT", "/models/a/invoke"),
        ("DELETE", "/models/a/invoke"),
    ],
)
def test_other_methods_are_refused(endpoint: ModelsStack, method: str, path: str) -> None:
    assert 405 == refusal(endpoint.request(method, path))[0]


@pytest.mark.parametrize("method", ["PROPFIND", "QUERY", "X"])
@pytest.mark.parametrize("path", ["/models", "/models/a", "/models/a/invoke"])
def test_methods_nobody_knows_are_refused_in_json(endpoint: ModelsStack, method: str, path: str) -> None:
    assert refusal(endpoint.request(method, path))[0] in (405, 501)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/invocations"),
        ("POST", "/nothing"),
        ("POST", "/modelsa"),
        ("GET", "/v1/models/a"),
        ("GET", "/models/a/other"),
    ],
)
def test_other_paths_are_not_found(endpoint: ModelsStack, method: str, path: str) -> None:
    status, _ = refusal(endpoint.request(method, path))

    assert status == 404 if not path.startswith("/models/") else status in (400, 404)


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_is_never_taken_for_the_next_request(
    models: ModelsStack, tmp_path: Path, framing: str
) -> None:
    models.load_new("kept", stub_model(tmp_path))
    smuggled = b"DELETE /models/kept HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

    for method, path in CARRIERS:
        for _ in range(3):
            models.send(method, path, smuggled if framing == "length" else iter([smuggled]))
            for _ in range(2):
                assert ["kept"] == list(models.listed()), (method, path)


@pytest.mark.parametrize("path", ["/models", "/ping", "/metrics"])
def test_nonsense_in_a_body_spoils_no_other_request(endpoint: ModelsStack, path: str) -> None:
    for _ in range(3):
        endpoint.send("GET", path, b"nonsense\r\n\r\n" * 100)
        assert [200] * 3 == [endpoint.request("GET", path).status for _ in range(3)]


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=abc", "limit=1.5", "next_page_token=../x"])
def test_a_page_that_cannot_be_is_refused(endpoint: ModelsStack, query: str) -> None:
    assert 400 == refusal(endpoint.request("GET", f"/models?{query}"))[0]
