from __future__ import annotations

import pytest

from pierhead.errors import ServingError, UnsupportedMediaType
from pierhead.formats.charsets import utf8_body


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("utf-8", "utf-8"),
        ("UTF8", "utf-8"),
        ('"utf-8"', "utf-8"),
        ("iso-8859-1", "latin-1"),
        ("windows-1252", "cp1252"),
        ("utf-16", "utf-16"),
        ("UTF-16LE", "utf-16-le"),
        ("utf-32be", "utf-32-be"),
    ],
)
def test_text_becomes_utf8(charset: str, codec: str) -> None:
    assert "é,1".encode() == utf8_body("é,1".encode(codec), f"text/csv; header=absent; Charset={charset}")


@pytest.mark.parametrize("content_type", ["", "text/csv", "text/csv; charset=", "text/csv; charset=us-ascii"])
def test_without_a_charset_bytes_come_through(content_type: str) -> None:
    assert utf8_body(b"\xff,1", content_type) == b"\xff,1"


@pytest.mark.parametrize("charset", ["koi8-r", "zip", "base64", "idna", "undefined"])
def test_unknown_charset_is_named(charset: str) -> None:
    with pytest.raises(UnsupportedMediaType, match=f"charset={charset} .*utf-8, "):
        utf8_body(b"1", f"text/csv; charset={charset}")


@pytest.mark.parametrize(
    ("charset", "body"), [("utf-16", b"1"), ("utf-32", b"\0\0\0\xff"), ("utf-16le", b"\0\xd8")]
)
def test_body_of_another_charset_is_refused(charset: str, body: bytes) -> None:
    with pytest.raises(ServingError, match=f"not text in {charset}"):
        utf8_body(body, f"text/csv; charset={charset}")
