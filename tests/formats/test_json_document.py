"""Python's scanner, simdjson and the exact reader must make the same of what more than one reads."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pierhead.errors import ServingError
from pierhead.formats.json_document import all_values, exact, first_object
from pierhead.formats.json_reader import JsonReader
from pierhead.formats.json_tensors import tensor
from pierhead.formats.numeric_array import Json, NumericArray, read_numeric_array

DTYPES = [
    "DT_FLOAT",
    "DT_DOUBLE",
    "DT_INT32",
    "DT_INT8",
    "DT_INT64",
    "DT_UINT32",
    "DT_UINT64",
    "DT_STRING",
    "DT_HALF",
]
TOKENS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.integers(-300, 300).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["-0", "-0.0", "1e5", "1E-3", "1e400", "01", "1.", "NaN", "2147483648", "4294967296"]),
)
ARRAYS = st.recursive(
    TOKENS,
    lambda inner: st.lists(inner, max_size=4).map(lambda items: f"[{' ,'.join(items)}]"),
    max_leaves=12,
)


@st.composite
def dense_arrays(draw: st.DrawFn) -> str:
    shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    token = draw(st.sampled_from([st.integers(-9, 9).map(str), TOKENS]))

    def text(dims: list[int]) -> str:
        return f"[{','.join(text(dims[1:]) for _ in range(dims[0]))}]" if dims else draw(token)

    return text(shape)


def outcome(read: Any, dtype: str) -> Any:
    try:
        array = tensor(read(), dtype)
    except ServingError as problem:
        return problem.code, problem.message
    return array.dtype, array.shape, array.tobytes() if array.dtype != object else array.tolist()


def plain(value: Json) -> Any:
    value = exact(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return repr(value)


@given(text=st.one_of(ARRAYS, dense_arrays()), dtype=st.sampled_from(DTYPES))
@settings(max_examples=200, deadline=None)
def test_quick_and_exact_arrays_agree(text: str, dtype: str) -> None:
    def quick() -> Json:
        return JsonReader(text.encode(), quick_from=1).read()

    def slow() -> Json:
        return JsonReader(text.encode(), quick_from=None).read()

    assert outcome(slow, dtype) == outcome(quick, dtype)


@given(
    document=st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**70), 2**70),
            st.floats(),
            st.text(alphabet='a"\\\n\u00e9\u4e2d\U0001f600\x01'),
        ),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(max_size=3), inner)),
        max_leaves=20,
    ),
    is_ascii=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_scanner_and_exact_reader_agree(document: Any, is_ascii: bool) -> None:
    body = json.dumps({"a": document, "b": [document]}, ensure_ascii=is_ascii).encode()

    assert plain(JsonReader(body, quick_from=None).read()) == plain(first_object(body))
    assert [plain(JsonReader(body, quick_from=None).read())] * 2 == [
        plain(each) for each in all_values(body * 2)
    ]


@given(
    body=st.text(alphabet='[]{}",:1e.-0 tnul\\NaIf\n', max_size=24).map(lambda text: b'{"a":' + text.encode())
)
@settings(max_examples=200, deadline=None)
def test_scanner_accepts_nothing_that_the_exact_reader_refuses(body: bytes) -> None:
    def result(read: Any) -> Any:
        try:
            return plain(read())
        except ServingError as problem:
            return problem.message

    assert result(JsonReader(body, quick_from=None).read) == result(lambda: first_object(body))


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (b"[]", (0,)),
        (b"[1]", (1,)),
        (b"[[],[]]", (2, 0)),
        (b"[[[]]]", (1, 1, 0)),
        (b"[[1, 2],\n[3, 4],[5,6]]", (3, 2)),
        (b"[[[1],[2]],[[3],[4]],[[5],[6]]]", (3, 2, 1)),
    ],
)
def test_shape_is_read_from_the_brackets(text: bytes, shape: tuple[int, ...]) -> None:
    array = read_numeric_array(text)

    assert array is not None
    assert shape == array.array.shape


@pytest.mark.parametrize(
    "text", [b"[1,[2]]", b"[[1],2]", b"[[1],[]]", b"[[],[1]]", b"[[1,2],[3]]", b"[1]]", b"[1,,2]", b"1"]
)
def test_ragged_arrays_are_left_to_the_exact_reader(text: bytes) -> None:
    assert read_numeric_array(text) is None


@given(text=dense_arrays())
@settings(max_examples=200, deadline=None)
def test_array_goes_back_to_what_it_was_read_from(text: str) -> None:
    array = read_numeric_array(text.encode())

    if array is not None:
        assert repr(JsonReader(text.encode(), quick_from=None).read()) == repr(exact(array))


def test_nesting_has_no_limit() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    document = first_object(b'{"a":' + deep + b',"instances":[1]}')

    assert isinstance(document, dict)
    assert exact(document["instances"]) == [1]


def test_deep_array_for_a_tensor_is_refused() -> None:
    document: Any = first_object(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}")

    with pytest.raises(ServingError, match="dimensions"):
        tensor(document["a"], "DT_FLOAT")


def test_image_bodies_take_numpy_s_way() -> None:
    body = b'{"instances":[{"x":' + json.dumps(np.ones((8, 8, 3)).tolist()).encode() + b"}]}"
    document: Any = first_object(body)

    assert isinstance(document["instances"][0]["x"], NumericArray)
    assert document["instances"][0]["x"].array.shape == (8, 8, 3)


def test_rows_of_numpy_arrays_and_of_odd_numbers_make_one_tensor() -> None:
    row = ",".join(["0.5"] * 60)
    values = JsonReader(f"[[[{row}]],[[NaN,{row[4:]}]]]".encode()).read()
    array = tensor(values, "DT_FLOAT")

    assert array.shape == (2, 1, 60)
    assert math.isnan(array[1, 0, 0])
    assert 0.5 == array[0, 0, 0] == array[1, 0, 1]


def test_first_of_equal_keys_wins_and_the_order_stays() -> None:
    document: Any = first_object(b'{"a":1,"b":2,"a":3}')

    assert list(document.items()) == [("a", 1), ("b", 2)]
