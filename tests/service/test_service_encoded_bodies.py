from __future__ import annotations

import gzip
import io
from typing import IO

import pytest
from flask.testing import FlaskClient
from tests.service.service_fakes import FakeBackend, make_plan

from pierhead.errors import PayloadTooLarge, ServingError
from pierhead.service.answers import Answer
from pierhead.service.app import create_app
from pierhead.service.call import Call
from pierhead.service.context import Context
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.encoded_bodies import decode_body
from pierhead.settings import Settings

ROWS = b'{"instances": [1.0, 2.0, 5.0]}'


def environ(body: bytes, encoding: str = "gzip") -> dict[str, object]:
    return {"HTTP_CONTENT_ENCODING": encoding, "CONTENT_LENGTH": "1", "wsgi.input": io.BytesIO(body)}


def client(*, hook: bool = False) -> FlaskClient:
    settings, backend = Settings.from_env({"PIERHEAD_MAX_DECOMPRESSED_MB": "1"}), FakeBackend()
    default = DefaultHandler(backend, settings.default_accept, settings.max_decompressed_mb << 20)
    return create_app(make_plan(), settings, backend, show if hook else default).test_client()


def show(data: IO[bytes], _call: Call, context: Context) -> Answer:
    """Answer as a hook that shows what it got."""
    encoding = context.request_headers.get("Content-Encoding")
    return Answer(f"{data.read()!r} {context.content_length} {encoding}".encode(), "text/plain")


@pytest.mark.parametrize("encoding", ["gzip", "X-GZIP"])
def test_gzip_is_replaced_by_what_it_holds(encoding: str) -> None:
    given = environ(gzip.compress(ROWS), encoding)
    decode_body(given, 1 << 20)

    assert given.keys() == {"CONTENT_LENGTH", "wsgi.input"}
    assert (str(len(ROWS)), ROWS) == (given["CONTENT_LENGTH"], given["wsgi.input"].read())  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ["br", "identity", "gzip, gzip"])
def test_other_encodings_stay(encoding: str) -> None:
    given = environ(ROWS, encoding)
    decode_body(given, 1 << 20)

    assert encoding == given["HTTP_CONTENT_ENCODING"]
    assert given["wsgi.input"].read() == ROWS  # type: ignore[attr-defined]


def test_limit_and_damage_are_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        decode_body(environ(gzip.compress(bytes(1000))), 999)
    with pytest.raises(ServingError):
        decode_body(environ(ROWS), 999)


def test_hooks_get_the_decoded_body_and_no_encoding() -> None:
    headers = {"Content-Encoding": "gzip"}
    answer = client(hook=True).post("/invocations", data=gzip.compress(b"abc"), headers=headers)

    assert answer.data == b"b'abc' 3 None"


def test_hooks_get_other_encodings_as_they_are() -> None:
    answer = client(hook=True).post("/invocations", data=b"abc", headers={"Content-Encoding": "br"})

    assert answer.data == b"b'abc' 3 br"


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(ROWS, mtime=0), "gzip", 200),
        (ROWS, "identity", 200),
        (ROWS, "gzip", 400),
        (gzip.compress(bytes((1 << 20) + 1), mtime=0), "gzip", 413),
        (ROWS, "br", 415),
    ],
)
def test_default_handler_answers_by_the_encoding(body: bytes, encoding: str, status: int) -> None:
    answer = client().post("/invocations", data=body, headers={"Content-Encoding": encoding})

    assert status == answer.status_code
    assert answer.content_type == "application/json"
    assert status == 200 or answer.get_json()["error"]
