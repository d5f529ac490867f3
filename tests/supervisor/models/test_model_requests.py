"""What is asked of `/models`, read and refused."""

from __future__ import annotations

import json

import pytest

from pierhead.errors import Code, ServingError
from pierhead.supervisor.models.requests import (
    PAGE_SIZE,
    LoadOrder,
    describe_model,
    list_page,
    read_load_order,
    read_model_name,
)

MODELS = {f"m{number:03}": f"/opt/ml/models/m{number:03}/model" for number in range(250)}


def names_of(page: dict[str, object]) -> list[str]:
    models = page["models"]
    assert isinstance(models, list)
    return [model["modelName"] for model in models]


def test_order_has_name_and_url() -> None:
    body = json.dumps({"model_name": "a", "url": "/opt/ml/models/a/model", "more": [1]}).encode()

    assert read_load_order(body) == LoadOrder("a", "/opt/ml/models/a/model")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"a"',
        b"null",
        b"{}",
        b'{"model_name": "a"}',
        b'{"url": "/x"}',
        b'{"model_name": "", "url": "/x"}',
        b'{"model_name": "a", "url": ""}',
        b'{"model_name": 1, "url": "/x"}',
        b'{"model_name": "a", "url": ["/x"]}',
        b'{"model_name": "../a", "url": "/x"}',
        b'{"model_name": "a\\n", "url": "/x"}',
        b'{"model_name": "a\\u0000", "url": "/x"}',
        b"\xff\xfe{",
        100_000 * b"[",
        b'{"model_name": "a", "url": ' + 5000 * b"9" + b"}",
    ],
    ids=lambda body: body[:30],
)
def test_body_that_is_no_order_is_refused(body: bytes) -> None:
    with pytest.raises(ServingError) as refusal:
        read_load_order(body)

    assert refusal.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-1", 255 * "n", 32 * "0f", "a..b", "a%2Eb", "a%62"])
def test_name_is_read_from_its_path(name: str) -> None:
    assert read_model_name(name) == name.replace("%2E", ".").replace("%62", "b")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "_a",
        "a/b",
        "a%2fb",
        "a%00",
        "a%0a",
        "a\n",
        "%ff",
        "%",
        "ä",
        "٣",
        256 * "n",
        "a b",
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ServingError) as refusal:
        read_model_name(name)

    assert refusal.value.code is Code.INVALID_ARGUMENT


def test_model_is_described_in_the_words_of_the_platform() -> None:
    assert {"modelName": "a", "modelUrl": "/x"} == describe_model("a", "/x")


def test_list_of_no_models_is_empty_without_a_token() -> None:
    assert list_page({}, "") == {"models": []}


def test_pages_hold_each_model_once() -> None:
    query, seen, lengths = "", [], []
    while True:
        page = list_page(MODELS, query)
        seen += names_of(page)
        lengths.append(len(names_of(page)))
        if "nextPageToken" not in page:
            break
        query = f"next_page_token={page['nextPageToken']}"

    assert seen == list(MODELS)
    assert lengths == [PAGE_SIZE, PAGE_SIZE, 50]


def test_page_that_ends_with_the_last_model_has_no_token() -> None:
    hundred = dict(list(MODELS.items())[:PAGE_SIZE])

    assert "nextPageToken" not in list_page(hundred, "")
    assert "nextPageToken" not in list_page(hundred, "limit=50&next_page_token=m049")


def test_token_of_a_model_that_is_gone_goes_on_behind_it() -> None:
    fewer = {name: url for name, url in MODELS.items() if name != "m001"}

    assert names_of(list_page(fewer, "next_page_token=m001&limit=1")) == ["m002"]


def test_token_behind_the_last_model_ends_the_list() -> None:
    assert list_page(MODELS, "next_page_token=z") == {"models": []}


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("limit=1", 1),
        ("limit=100", 100),
        ("limit=101", 100),
        ("limit=999999999", 100),
        ("next_page_token=", 100),
    ],
)
def test_limit_bounds_the_page(query: str, count: int) -> None:
    assert len(names_of(list_page(MODELS, query))) == count


def test_unknown_parts_of_a_query_are_ignored() -> None:
    assert names_of(list_page(MODELS, "x=1&limit=2&;")) == ["m000", "m001"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=",
        "limit=x",
        "limit=1.5",
        "limit=1e2",
        "limit=%D9%A3",
        "limit=1%0a",
        "limit=1000000000",
        "next_page_token=../x",
        "next_page_token=%00",
        "next_page_token=a%0a",
        "&".join(f"x{number}=1" for number in range(40)),
    ],
)
def test_query_that_cannot_be_meant_is_refused(query: str) -> None:
    with pytest.raises(ServingError) as refusal:
        list_page(MODELS, query)

    assert refusal.value.code is Code.INVALID_ARGUMENT
