"""Bytes of any kind at the HTTP port: each connection is answered or ended, and the server stays well."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.modelserver.running_server import RunningServer
from tests.modelserver.wellness import Wellness

SECONDS = 20
EXAMPLES = settings(
    max_examples=120,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PREDICT = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: h\r\n"
BODY = b'{"instances": [1.0, 2.0]}'
VALID = [
    PREDICT + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    PREDICT + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"GET /v1/models/half/metadata HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
    b"OPTIONS /v1/models/half HTTP/1.0\r\nOrigin: http://o\r\nExpect: 100-continue\r\n\r\n",
    b"POST /invocations/v1/models/half:predict HTTP/1.1\r\nContent-Type: text/csv\r\n"
    b"Accept: text/csv\r\nContent-Length: 4\r\n\r\n1\n2\n",
]
PATHS = [
    "/v1/models/half:predict",
    "/v1/models/half:classify",
    "/v1/models/half:regress",
    "/invocations/v1/models/half:predict",
]
# 500 is a fault of the server.
EXPECTED = {200, 400, 404, 406, 415, 429, 501, 504}


@pytest.fixture(autouse=True, scope="module")
def stays_well(server: RunningServer) -> Iterator[None]:
    with Wellness(server).kept():
        yield


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """A valid text with pieces cut out, doubled, or replaced by other bytes."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 20)))
        piece = draw(st.one_of(st.binary(max_size=8), st.just(text[start:end] * 2), st.sampled_from(PIECES)))
        text = text[:start] + piece + text[end:]
    return text


PIECES = [
    b"\r\n",
    b"\r\n\r\n",
    b"\x00",
    b"\xff\xfe",
    b"9" * 30,
    b"-1",
    b" ",
    b":",
    b"%2F%00%",
    b"[",
    b'{"b64":',
]
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**30, -(10**400), 2**63, 2**64, 1e308, 5e-324])
)
VALUES = st.recursive(
    st.one_of(NUMBERS, st.none(), st.booleans(), st.text(max_size=5), st.just({"b64": "AAAA"})),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["x", "a", "b", "b64", "inputs", ""]), inner, max_size=3),
    ),
    max_leaves=12,
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "instances": VALUES,
        "inputs": VALUES,
        "examples": VALUES,
        "context": VALUES,
        "signature_name": st.one_of(st.sampled_from(["", "pair", "serving_default"]), VALUES),
    },
)


def exchange(server: RunningServer, data: bytes) -> bytes:
    """Send bytes and close this side; return all that comes back, until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=SECONDS) as connection:
        answer = b""
        with suppress(ConnectionError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                answer += piece
        return answer


def status_of(server: RunningServer, path: str, body: bytes, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.post(server.url(path), body, headers=named, timeout=SECONDS).status_code


@EXAMPLES
@given(data=st.one_of(st.binary(max_size=200), mutated(VALID)))
def test_any_bytes_are_answered_or_end_the_connection(server: RunningServer, data: bytes) -> None:
    answer = exchange(server, data)

    assert not answer or answer.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in answer


@EXAMPLES
@given(document=DOCUMENTS, path=st.sampled_from(PATHS))
def test_any_document_is_answered(server: RunningServer, document: dict[str, Any], path: str) -> None:
    assert status_of(server, path, json.dumps(document).encode()) in EXPECTED


@EXAMPLES
@given(
    body=st.one_of(
        st.binary(max_size=100),
        mutated([b'{"inputs": [[1e3, -2], [3, 4]]}', b"1,2\n3,4\n", gzip.compress(BODY)]),
    ),
    path=st.sampled_from(PATHS),
    content_type=st.sampled_from(
        ["application/json", "application/jsonlines", "text/csv", "application/x-npy", "", "x"]
    ),
    encoding=st.sampled_from(["", "gzip"]),
)
def test_any_body_of_any_kind_is_answered(
    server: RunningServer, body: bytes, path: str, content_type: str, encoding: str
) -> None:
    assert status_of(server, path, body, Content_Type=content_type, Content_Encoding=encoding) in EXPECTED


def named(**bodies: bytes) -> list[Any]:
    return [pytest.param(body, id=name) for name, body in bodies.items()]


@pytest.mark.parametrize(
    "body",
    named(
        lists=b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        open_lists=b'{"instances": ' + b"[" * 100_000,
        objects=b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        rows=b'{"instances": [' + b'{"x":' * 100_000 + b"1" + b"}" * 100_000 + b"]}",
        digits=b'{"instances": [' + b"9" * 100_000 + b"]}",
        exponent=b'{"instances": [1e999999999]}',
        string=b'{"instances": ["' + b"\\u0000" * 50_000 + b'"]}',
        keys=b"{" + b",".join(b'"%d":1' % i for i in range(20_000)) + b"}",
        ragged=b'{"instances": [' + b"[]," * 30_000 + b"1]}",
    ),
)
@pytest.mark.parametrize("path", PATHS)
def test_hostile_document_is_refused(server: RunningServer, path: str, body: bytes) -> None:
    assert status_of(server, path, body) == 400


@pytest.mark.parametrize("size", [150 << 20, 10 << 20])
def test_gzip_bomb_is_refused(server: RunningServer, size: int) -> None:
    bomb = gzip.compress(b" " * size, 1)

    assert status_of(server, PATHS[0], bomb, Content_Encoding="gzip") == 400


@pytest.mark.parametrize(
    "data",
    named(
        headers=b"GET /v1/models/half HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        long_header=b"GET /v1/models/half HTTP/1.1\r\na: " + b"b" * 900_000 + b"\r\n\r\n",
        long_path=b"GET /v1/models/" + b"m" * 900_000 + b" HTTP/1.1\r\n\r\n",
        chunk_size=PREDICT + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
        chunk_garbage=PREDICT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n\r\n",
        negative_length=PREDICT + b"Content-Length: -5\r\n\r\n",
        huge_length=PREDICT + b"Content-Length: 99999999999999999999999\r\n\r\n",
        both_lengths=PREDICT + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        tls=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        http2=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
    ),
)
def test_hostile_connection_ends(server: RunningServer, data: bytes) -> None:
    answer = exchange(server, data)

    assert not answer or answer.startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000 + "9" * 20])
def test_version_of_many_digits_is_refused(server: RunningServer, digits: str) -> None:
    path = f"/v1/models/half/versions/{digits}"

    assert requests.get(server.url(path), timeout=SECONDS).status_code == 400
    assert status_of(server, f"{path}:predict", BODY) == 400
    assert status_of(server, f"/invocations{path}:predict", BODY) == 400


def test_version_may_have_many_zeros(server: RunningServer) -> None:
    assert status_of(server, f"/v1/models/half/versions/{'0' * 5000}123:predict", BODY) == 200
