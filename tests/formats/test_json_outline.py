"""The outline of a document must refuse what the exact reader refuses, for the same reason, only sooner."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pierhead.errors import ServingError
from pierhead.formats.json_document import all_values, first_object
from pierhead.formats.json_outline import JsonOutline
from pierhead.formats.json_reader import JsonReader

PIECES = [
    *(
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        '"a"',
        '"a":',
        '"":',
        "1",
        "-0.5",
        "1e5",
        "1e400",
        "01",
        "1.",
        "null",
        "nul",
    ),
    *(
        "[]",
        "{}",
        "[1,[2]],",
        '{"a":[{}]},',
        "NaN",
        "-Inf",
        "Infini",
        '"\\n"',
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
    ),
    *(
        '"\\u00e9[{"',
        "]]",
        "}}",
        "]},",
        "[[[",
        '"\\x"',
        '"',
        " ",
        "[" * 9,
        "]" * 9,
        "[" * 70,
        "]" * 70,
        "9" * 120,
    ),
]
DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(max_size=3), inner)),
    max_leaves=40,
)
BROKEN = {
    "open arrays": b"[",
    "open objects": b'{"a":',
    "both": b'[{"":',
    "empty arrays": b"[],",
    "lists": b"[[1],{}],",
    "open lists": b"[1,",
    "strings": b'"",',
    "numbers": b"1,",
    "escapes": b'"\\n\\n",',
}


def outcome(read: Any) -> Any:
    """Return where a reader ends, or its refusal."""
    try:
        read()
    except ServingError as problem:
        return problem.message
    return None


def end_of(reader: JsonReader, read: Any) -> Any:
    return outcome(read) or reader._position


def assert_same_end(body: bytes) -> None:
    reader, outline = JsonReader(body, quick_from=None), JsonOutline(body)

    assert end_of(reader, reader.read) == end_of(outline, outline.check)


@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join), is_within=st.booleans())
@settings(max_examples=600, deadline=None)
def test_outline_and_reader_agree_on_pieces(text: str, is_within: bool) -> None:
    assert_same_end((b"[" if is_within else b"") + text.encode())


@given(document=DOCUMENTS, cut=st.integers(0, 400), wrong=st.sampled_from(["", "]", "}", ",", ":", "x", '"']))
@settings(max_examples=300, deadline=None)
def test_outline_and_reader_agree_on_damaged_documents(document: Any, cut: int, wrong: str) -> None:
    text = json.dumps([document, {"a": document}])

    assert_same_end(text.encode())
    assert_same_end((text[:cut] + wrong + text[cut + 1 :]).encode())


@pytest.mark.parametrize(
    "text", [*BROKEN.values(), b"[" * 2000 + b"]" * 2000 + b",", b'{"a":' * 900 + b"1" + b"}" * 900 + b","]
)
def test_outline_and_reader_agree_far_into_a_document(text: bytes) -> None:
    body = b"[" + text * (6000 // len(text) + 1)

    for rest in (b"", b"1", b"]", b"}", b'"a":1', b"1]]"):
        assert_same_end(body + rest)


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_large_body_broken_at_its_end_is_refused_there(text: bytes) -> None:
    size = 1 << 20
    body = b'{"instances":[' + text * (size // len(text)) + b"!"

    with pytest.raises(ServingError, match=f"Invalid value. at offset: {len(body) - 1}$"):
        first_object(body)


@pytest.mark.parametrize("odd", [b"18446744073709551616", b'"\\ud83d\\ude00"', b"1e300", b'"\xff"', b"-Inf"])
def test_large_odd_body_is_what_the_exact_reader_makes_of_it(odd: bytes) -> None:
    body = b'{"a":' + odd + b',"b":[' + b'"",' * 6000 + odd + b'],"a":1} 2'

    assert JsonReader(body, quick_from=None).read() == first_object(body)
    assert [JsonReader(body[:-2], quick_from=None).read(), 2] == all_values(body)


def test_deep_lists_are_closed_as_far_as_they_are_lists() -> None:
    deep = b"[" * 70 + b"]" * 70
    body = b'[{"a":' + deep + b'},{"a":' + deep[:-1] + b",1]}]"

    assert json.loads(body) == JsonReader(body).read()


def test_ragged_arrays_of_a_long_body_are_read_at_once() -> None:
    rows = [[1], [2, 3], [], [[0.5]]] * 20_000
    document: Any = first_object(json.dumps({"instances": rows}).encode())

    assert rows == document["instances"]
