"""No body makes a reader fail in a way that it does not mean to: what it raises is a PierheadError."""

from __future__ import annotations

import gzip
import io
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pierhead.errors import PierheadError
from pierhead.formats.encodings import decoded
from pierhead.formats.payloads import parse_payload
from pierhead.formats.tensors import Signature, TensorSpec

LIMIT = 1 << 20
TYPES = [
    "application/json",
    "application/json; charset=utf-16",
    "application/jsonlines",
    "text/csv",
    "text/csv; charset=utf-32",
    "application/x-npy",
    "application/x-npz",
    "application/octet-stream",
    "image/png",
    "a/b",
]
SIGNATURES = [
    Signature("s", "", {name: TensorSpec(dtype, None) for name in names}, {})
    for dtype in ("DT_FLOAT", "DT_INT32", "DT_STRING", "DT_BOOL", "DT_RESOURCE")
    for names in (("x",), ("x", "y"), ())
]


def npy(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(array))
    return stream.getvalue()


def npz(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


SEEDS = [
    b'{"instances": [{"x": 1, "y": [2.5e3, null]}, {"x": {"b64": "AA=="}}], "signature_name": "s"}',
    b'[[1, 2], [NaN, "\\ud83d\\ude00"]]\n[[3]]',
    b'1,"two ""2""",\r\n\r\n-3.5,NaN,x\n',
    npy([[1.5, 2], [3, 4]]),
    npy(["a", "é"]),
    npz(x=np.arange(5), y=np.array(["a"])),
    npz(arr_0=np.zeros((2, 2)), format=np.array(b"csr")),
    gzip.compress(b"[1, 2, 3]", mtime=0),
]
PIECES = [
    b"",
    b"\0",
    b"\xff" * 4,
    b"[" * 2000,
    b"9" * 5000,
    b"PK\x01\x02",
    b"\x93NUMPY",
    b"(-1,)",
    b'"',
    b"\r",
]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw a body that is almost right."""
    body = draw(st.sampled_from(SEEDS) | st.binary(max_size=200))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=8))
        body = body[:at] + piece + body[at + draw(st.integers(0, 8)) :]
    return body


def read_all(body: bytes, content_type: str) -> None:
    with suppress(PierheadError):
        document = parse_payload(body, content_type, LIMIT)
        for signature in SIGNATURES:
            with suppress(PierheadError):
                document.tensors(signature)


@settings(max_examples=600, deadline=None)
@given(body=bodies(), content_type=st.sampled_from(TYPES))
def test_almost_right_bodies_are_read_or_refused(body: bytes, content_type: str) -> None:
    read_all(body, content_type)


@settings(max_examples=300, deadline=None)
@given(body=bodies(), header=st.sampled_from(["gzip", "x-gzip", "br", "gzip,gzip", "\xe9"]))
def test_almost_right_encodings_are_decoded_or_refused(body: bytes, header: str) -> None:
    with suppress(PierheadError):
        assert len(decoded(body, header, LIMIT)) <= max(LIMIT, len(body))


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"instances":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"-" * 100_000,
        b"1" * 100_000,
        b'"' * 100_001,
        b"\0" * 100_000,
        b"," * 100_000,
        b"\n" * 100_000,
        b"\xff\xfe" + "1,2".encode("utf-16-le"),
        "1,2".encode("utf-16"),
        "[1]".encode("utf-32"),
        b"\xed\xa0\x80",
        b'"\\ud800"',
        npy(np.zeros((3, 0, 5))),
        npy("x" * 1000),
    ],
)
def test_hostile_bodies_are_read_or_refused(body: bytes, content_type: str) -> None:
    read_all(body, content_type)
