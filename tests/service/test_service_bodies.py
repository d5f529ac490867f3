from __future__ import annotations

import io
from typing import Any

import pytest

from pierhead.errors import Code, ServingError
from pierhead.service.bodies import WholeBody, whole_bodies


class Broken:
    """A stream in chunks that ends before the last one."""

    def read(self, *_: Any) -> bytes:
        raise OSError("no more data")

    readline = read


def test_a_whole_body_is_read_as_it_is() -> None:
    assert WholeBody(io.BytesIO(b"ab\ncd"), 5).read() == b"ab\ncd"
    assert list(WholeBody(io.BytesIO(b"ab\ncd"), 5)) == [b"ab\n", b"cd"]
    assert WholeBody(io.BytesIO(b""), 0).read() == b""
    assert WholeBody(io.BytesIO(b"ab"), None).read() == b"ab"


def test_a_body_is_read_in_parts() -> None:
    body = WholeBody(io.BytesIO(b"abcde"), 5)

    assert [body.read(2), body.read(0), body.read(2), body.read(2), body.read(2)] == [
        b"ab",
        b"",
        b"cd",
        b"e",
        b"",
    ]


@pytest.mark.parametrize("size", [-1, None, 3, 100])
def test_a_body_that_is_cut_short_is_refused(size: int | None) -> None:
    body = WholeBody(io.BytesIO(b"abc"), 5)

    with pytest.raises(ServingError) as refusal:
        list(iter(lambda: body.read(size), b""))

    assert refusal.value.code is Code.CANCELLED


def test_lines_of_a_body_that_is_cut_short_are_refused() -> None:
    with pytest.raises(ServingError):
        list(WholeBody(io.BytesIO(b"ab\ncd"), 9))


def test_chunks_that_break_off_are_refused() -> None:
    with pytest.raises(ServingError):
        WholeBody(Broken(), None).read()


def test_what_the_application_leaves_is_read_after_its_answer() -> None:
    stream = io.BytesIO(b"abcde")

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [environ["wsgi.input"].read(1)]

    environ = {"wsgi.input": stream, "CONTENT_LENGTH": "5"}
    answer = whole_bodies(app)(environ, lambda *_: lambda _: None)

    assert list(answer) == [b"a"]
    assert stream.tell() == 1
    answer.close()  # type: ignore[attr-defined]
    assert stream.tell() == 5


def test_a_client_that_is_gone_ends_the_reading() -> None:
    WholeBody(io.BytesIO(b"abc"), 5).drain()
    WholeBody(Broken(), None).drain()
