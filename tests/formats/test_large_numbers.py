"""Large arrays are read and written in blocks, which changes nothing but the memory that it takes."""

from __future__ import annotations

import numpy as np
import pytest

from pierhead.formats.json_writing import list_text, nested_text, object_text, scalar_texts
from pierhead.formats.numeric_array import LARGEST_FOR_KEPT, read_numeric_array
from pierhead.formats.predict_json import BLOCK, Layout, render_predict
from pierhead.formats.tensors import Array

COUNT = LARGEST_FOR_KEPT // 8 + 10
FLAT = b",".join([b"1.23456"] * COUNT)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (b"[" + FLAT + b"]", (COUNT,)),
        (b"[[[" + FLAT + b"]]]", (1, 1, COUNT)),
        (b"[[" + FLAT + b"] , [\n" + FLAT + b"\t]]", (2, COUNT)),
        (b"[" + b" ,".join([b"[1.5 , 2e0 ]"] * COUNT) + b"]", (COUNT, 2)),
    ],
)
def test_a_large_array_is_read_whole(text: bytes, shape: tuple[int, ...]) -> None:
    numbers = read_numeric_array(text)

    assert numbers is not None
    assert shape == numbers.array.shape
    assert numbers.array.dtype == np.float64
    assert numbers.array.reshape(-1)[[0, -1]].tolist() in ([1.23456, 1.23456], [1.5, 2.0])


def test_large_integers_stay_integers() -> None:
    numbers = read_numeric_array(b"[" + b",".join([b"-12345678"] * COUNT) + b"]")

    assert numbers is not None
    assert numbers.array.dtype == np.int64
    assert (numbers.array == -12345678).all()


@pytest.mark.parametrize(
    "end",
    [
        b",]",
        b",,1]",
        b",[1]]",
        b" 1]",
        b"[]]",
        b"]1]",
        b",1[,2]]",
        b"]",
        b",1]]",
        b",x]",
        b',"1"]',
        b",null]",
        b"",
    ],
)
@pytest.mark.parametrize("start", [b"[", b"[["])
def test_a_large_text_that_is_no_dense_array_is_none(start: bytes, end: bytes) -> None:
    is_right = start + end == b"[]" or (start == b"[[" and end == b",1]]")

    assert (read_numeric_array(start + FLAT + end) is not None) == is_right


def written(array: Array) -> list[bytes]:
    return nested_text(scalar_texts(array), array.shape, None)


@pytest.mark.parametrize(
    "shape", [(BLOCK + 1,), (2 * BLOCK,), (300, 1000), (1, 3 * BLOCK), (2, 3, BLOCK), (1, 1, 2, BLOCK + 7)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_large_answer_is_laid_out_as_a_small_one(shape: tuple[int, ...], dtype: type) -> None:
    array: Array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    texts = b"[" + b", ".join(written(array)) + b"\n    ]"

    assert object_text([(b'"predictions"', texts)], 0) == render_predict({"y": array}, Layout.ROW)


def test_a_large_answer_by_columns_is_laid_out_as_a_small_one() -> None:
    array = np.arange(2.0 * BLOCK, dtype=np.float32).reshape(2, BLOCK)
    (whole,) = nested_text(scalar_texts(array), (1, *array.shape), 1)
    flat = np.arange(2.0 * BLOCK, dtype=np.float32)
    (flat_text,) = nested_text(scalar_texts(flat), (1, *flat.shape), 1)

    assert object_text([(b'"outputs"', whole)], 0) == render_predict({"y": array}, Layout.COLUMNAR)
    assert object_text([(b'"outputs"', flat_text)], 0) == render_predict({"y": flat}, Layout.COLUMNAR)


def test_several_large_outputs_are_laid_out_as_small_ones() -> None:
    a = np.arange(BLOCK + 5)
    b = np.arange(2 * BLOCK + 10).reshape(-1, 2)
    rows = [object_text([(b'"a"', x), (b'"b"', y)], 2) for x, y in zip(written(a), written(b), strict=True)]
    texts = list_text(rows, 1)

    assert object_text([(b'"predictions"', texts)], 0) == render_predict({"a": a, "b": b}, Layout.ROW)
