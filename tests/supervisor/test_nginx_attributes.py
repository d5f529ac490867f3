"""nginx and the handler workers read one grammar: nginx routes by itself what the workers would route so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.supervisor.nginx_site import Site, fakes, running_nginx

from pierhead.contract.attributes import (
    LABEL,
    METHOD,
    METHODS,
    MODEL,
    VERSION,
    Attributes,
    parse_attributes,
)
from pierhead.errors import ServingError
from pierhead.supervisor.run_folder import RunFolder

KEYS = [rule.key for rule in (MODEL, VERSION, LABEL, METHOD)]
BLANKS = st.sampled_from(["", " ", "\t", "  "])
VALUES = st.one_of(
    st.sampled_from(
        ["a", "b.c", "1", "007", "9" * 18, "9" * 19, "9" * 30, "..", "", "!", "$model", "é", "x y"]
    ),
    st.sampled_from(METHODS),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_categories=["Cc"]), max_size=8),
)
PAIRS = st.tuples(BLANKS, st.sampled_from([*KEYS, "foo", "my-tfs-method", ""]), BLANKS, VALUES, BLANKS)
WRITTEN_PAIR = PAIRS.map(lambda pair: f"{pair[0]}{pair[1]}{pair[2]}={pair[3]}{pair[4]}")
FRAGMENTS = st.sampled_from([*KEYS, "-label", "=", ",", " ", "\t", "a", "1", "predict", "\x0b", "é"])
HEADERS = st.one_of(
    st.lists(WRITTEN_PAIR, max_size=5).map(",".join), st.lists(FRAGMENTS, max_size=12).map("".join)
)
NAME = st.from_regex(MODEL.pattern, fullmatch=True)
PLAIN = st.fixed_dictionaries(
    {},
    optional={
        MODEL.key: NAME,
        METHOD.key: st.sampled_from(METHODS),
        "tenant": st.sampled_from(["a", "a=b", ""]),
    },
)
CHOICE: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({VERSION.key: st.integers(0, 10**18 - 1).map(str)}),
    st.fixed_dictionaries({LABEL.key: NAME}),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("s")
    for part in (folder, *folder.parents):
        if part.stat().st_uid == folder.stat().st_uid and part != Path("/tmp") and part != Path("/"):
            part.chmod(0o711)
    run = RunFolder.make(folder / "r")
    with fakes(run) as port, running_nginx(run, port, has_hooks=False, is_embedded=True) as running:
        yield running


def path_of(attributes: Attributes) -> str:
    """Return the path that these attributes mean, where `a` is the default model."""
    version = "" if attributes.version is None else f"/versions/{attributes.version}"
    label = "" if attributes.label is None else f"/labels/{attributes.label}"
    return f"{quote(attributes.model or 'a')}{version}{label}:{attributes.method}"


def route(site: Site, header: str) -> str | None:
    """Return the model server's path without leading zeros, None where the workers got the request."""
    answer = site.invoke(header.encode("latin-1").decode("latin-1")).json
    if answer["upstream"] == "workers":
        return None
    path = answer["line"].removeprefix("POST /invocations/v1/models/")
    name, versions, rest = path.partition("/versions/")
    number, _, method = rest.partition(":")
    return f"{name}/versions/{int(number)}:{method}" if versions else path


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HEADERS)
@example("tfs-model-name=a,tfs-model-name=b")
@example("tfs-model-version=1,tfs-model-version-label=x")
@example("tfs-model-version-label=x-tfs-model-version=1")
def test_nginx_goes_by_itself_only_where_the_workers_would_go(site: Site, header: str) -> None:
    went = route(site, header)
    try:
        expected = path_of(parse_attributes(header.strip(" \t")))
    except ServingError:
        expected = None

    assert went is None or went == expected


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLAIN, CHOICE)
def test_plain_attributes_need_no_worker(site: Site, pairs: dict[str, str], choice: dict[str, str]) -> None:
    header = ", ".join(f"{key}={value}" for key, value in (pairs | choice).items())

    assert path_of(parse_attributes(header)) == route(site, header)
