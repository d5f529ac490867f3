"""Predict requests to JSON text, and a model server's JSON answers to lines, with its spelling of numbers."""

from __future__ import annotations

import json

import pytest

from pierhead.formats.json_answers import render_document, rewrite_answer
from pierhead.formats.payloads import parse_payload
from pierhead.formats.predict_json import PredictDocument

LINES, CSV, JSON = "application/jsonlines", "text/csv", "application/json"


def written(body: bytes, content_type: str) -> bytes:
    document = parse_payload(body, content_type)
    assert isinstance(document, PredictDocument)
    return render_document(document.root)


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"1.0,2.0,5.0", CSV, {"instances": [[1.0, 2.0, 5.0]]}),
        (b'5,"pine, ""dip"""', CSV, {"instances": [[5, 'pine, "dip"']]}),
        (b'{"a": [1]}', JSON, {"instances": [{"a": [1]}]}),
        (b'{"inputs": {"a": [1], "b": "\\u00e9"}, "signature_name": "s"}', JSON, None),
        (b'[[' + b"1," * 100 + b'1], ["x"]]', JSON, {"instances": [[1] * 101, ["x"]]}),
    ],
)  # fmt: skip
def test_a_request_is_the_same_value_in_json(body: bytes, content_type: str, expected: object) -> None:
    assert (json.loads(body) if expected is None else expected) == json.loads(written(body, content_type))


def test_numbers_of_long_arrays_keep_their_spelling() -> None:
    numbers = b",".join(b"%d.50" % number for number in range(200))

    assert b'{"instances": [' + numbers + b"]}" == written(b"\n".join(numbers.split(b",")), CSV)


@pytest.mark.parametrize(
    ("answer", "media_type", "expected"),
    [
        (b'{"predictions": [2.50, 1e+06]}', LINES, b"2.50\n1e+06\n"),
        (b'{"predictions": [[1.0, 2.0], [3, 4]]}', LINES, b"[1.0, 2.0]\n[3, 4]\n"),
        (b'{"predictions": [{"b": 1.0, "a": ["x", true]}]}', LINES, b'{"b": 1.0, "a": ["x", true]}\n'),
        (b'{"predictions": [NaN, -Infinity]}', LINES, b"NaN\n-Infinity\n"),
        (b'{"outputs": {"a": [1, 2], "b": [3, 4]}}', LINES, b'{"a": 1, "b": 3}\n{"a": 2, "b": 4}\n'),
        (b'{"outputs": 7}', LINES, b"7\n"),
        (b'{"predictions": [[1.0, [2.0]], [3, 4]]}', CSV, b"1.0,2.0\n3,4\n"),
        (b'{"predictions": [{"b": 1.0, "a": "x,y"}, {"a": "", "b": 2}]}', CSV, b'"x,y",1.0\n,2\n'),
        (b'{"predictions": ["", "z"]}', CSV, b'""\nz\n'),
    ],
)  # fmt: skip
def test_an_instance_a_line(answer: bytes, media_type: str, expected: bytes) -> None:
    assert (expected, media_type) == rewrite_answer(answer, media_type)


@pytest.mark.parametrize(
    "answer",
    [b"no JSON", b"[1]", b"{}", b'{"error": "x"}', b'{"outputs": {"a": [1], "b": [1, 2]}}', b"[" * 100_000],
)
def test_what_has_no_instances_stays_as_it_is(answer: bytes) -> None:
    assert (answer, JSON) == rewrite_answer(answer, LINES)


def test_json_stays_byte_for_byte() -> None:
    assert (b'{ "predictions":[ 1 ] }', JSON) == rewrite_answer(b'{ "predictions":[ 1 ] }', JSON)
