from __future__ import annotations

import gzip
import time
import tracemalloc

import pytest

from pierhead.errors import PayloadTooLarge, ServingError, UnsupportedMediaType
from pierhead.formats.encodings import decoded

TEXT = b'{"instances": [1]}'


@pytest.mark.parametrize("header", ["gzip", "GZIP", "x-gzip", "identity, gzip", " gzip "])
def test_gzip_is_decoded(header: str) -> None:
    assert TEXT == decoded(gzip.compress(TEXT), header)


@pytest.mark.parametrize("header", [None, "", "identity", "Identity", ","])
def test_body_without_encoding_stands_as_it_is(header: str | None) -> None:
    assert TEXT == decoded(TEXT, header)


def test_members_follow_one_another() -> None:
    assert TEXT * 2 == decoded(gzip.compress(TEXT) * 2, "gzip")


def test_large_body_is_decoded_in_steps() -> None:
    body = bytes(range(256)) * 20_000

    assert body == decoded(gzip.compress(body, 0), "gzip")


def test_empty_body_stays_empty() -> None:
    assert decoded(b"", "gzip") == b""


@pytest.mark.parametrize("header", ["br", "deflate", "zstd", "gzip, gzip", "gzip, br"])
def test_other_encoding_is_named(header: str) -> None:
    with pytest.raises(UnsupportedMediaType, match=f"Content-Encoding {header} .*supported: gzip, identity"):
        decoded(TEXT, header)


@pytest.mark.parametrize(
    "body",
    [
        TEXT,
        gzip.compress(TEXT, mtime=0)[:-1],
        gzip.compress(TEXT, mtime=0)[:5],
        gzip.compress(TEXT, mtime=0) + b"rest",
        gzip.compress(TEXT, mtime=0)[:-8] + bytes(8),
    ],
)
def test_damaged_body_is_refused(body: bytes) -> None:
    with pytest.raises(ServingError, match="not gzip as Content-Encoding says"):
        decoded(body, "gzip")


def test_limit_is_the_last_size_that_passes() -> None:
    body = gzip.compress(bytes(1000))

    assert bytes(1000) == decoded(body, "gzip", 1000)
    with pytest.raises(PayloadTooLarge, match="PIERHEAD_MAX_DECOMPRESSED_MB"):
        decoded(body, "gzip", 999)


def test_nothing_is_decompressed_beyond_the_limit() -> None:
    bomb = gzip.compress(bytes(1 << 26), 1)
    tracemalloc.start()
    with pytest.raises(PayloadTooLarge):
        decoded(bomb, "gzip", 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 4 << 20


def test_countless_members_are_refused_at_once() -> None:
    body = gzip.compress(b"") * 200_000
    started = time.monotonic()

    with pytest.raises(ServingError, match="too many members"):
        decoded(body, "gzip")
    assert time.monotonic() - started < 2
