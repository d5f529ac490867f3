from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pierhead.errors import ServingError
from pierhead.formats.json_writing import quoted, scalar_texts
from pierhead.formats.predict_json import Layout, render_error, render_predict

FLOATS = {
    1.0: "1.0", 0.1: "0.1", 1 / 3: "0.333333343", math.pi: "3.14159274", 1e-05: "1e-05", 0.0001: "0.0001",
    100000: "100000.0", 1000000: "1e+06", 1234567: "1234567.0", 16777216: "16777216.0", 2147483648:
    "2.14748365e+09", 3.4028235e38: "3.40282347e+38", math.inf: "Infinity", -math.inf: "-Infinity",
}  # fmt: skip
DOUBLES = {
    1 / 3: "0.33333333333333331", 2 / 3: "0.66666666666666663", math.pi: "3.1415926535897931",
    0.1234567: "0.1234567", 1e15: "1e+15", 1234567: "1234567.0", 123456789: "123456789.0", 1e300: "1e+300",
    5e-324: "4.94066e-324", 2.2250738585072014e-308: "2.2250738585072014e-308", -0.0: "-0.0", 0.5: "0.5",
}  # fmt: skip


def by_rule(value: float, dtype: type[np.floating]) -> bytes:
    """Section 6 of the contract, word for word."""
    text = f"{value:.6g}"
    if dtype(text) != value:
        text = f"{value:.9g}" if dtype is np.float32 else f"{value:.17g}"
    named = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return named.get(text, text if "." in text or "e" in text else f"{text}.0").encode()


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize(("table", "dtype"), [(FLOATS, np.float32), (DOUBLES, np.float64)])
def test_floats_are_printed_as_upstream_prints_them(
    table: dict[float, str], dtype: type[np.floating], times: int
) -> None:
    array = np.array(list(table) * times, dtype)

    assert [text.encode() for text in table.values()] * times == scalar_texts(array)


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=60))
@settings(max_examples=80, deadline=None)
def test_float32_by_the_rule(values: list[float]) -> None:
    assert [by_rule(value, np.float32) for value in values] == scalar_texts(np.array(values, np.float32))


@given(values=st.lists(st.floats(), min_size=1, max_size=60))
@settings(max_examples=80, deadline=None)
def test_float64_by_the_rule(values: list[float]) -> None:
    assert [by_rule(value, np.float64) for value in values] == scalar_texts(np.array(values, np.float64))


@given(text=st.text())
def test_strings_read_back(text: str) -> None:
    encoded = text.encode(errors="surrogatepass")

    assert text == json.loads(quoted(encoded).decode(errors="surrogatepass"))


@pytest.mark.parametrize("shape", [(2,), (2, 3), (0,), (2, 0), (0, 2), (2, 0, 3), (2, 1, 0, 2)])
def test_every_shape_reads_back_in_both_layouts(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)

    assert {"predictions": array.tolist()} == json.loads(render_predict({"y": array}, Layout.ROW))
    assert {"outputs": array.tolist()} == json.loads(render_predict({"y": array}, Layout.COLUMNAR))


def test_arrays_that_are_views_are_written_in_row_order() -> None:
    array = np.arange(6.0).reshape(2, 3).T[::-1]

    assert {"predictions": array.tolist()} == json.loads(render_predict({"y": array}, Layout.ROW))


def test_halves_cannot_be_written() -> None:
    with pytest.raises(ServingError, match=r"^Failed to write JSON value for tensor type: half$"):
        scalar_texts(np.array([1], np.float16))


def test_error_body_is_upstream_s() -> None:
    assert render_error('a "b" \n \x1f /') == b'{\n    "error": "a \\"b\\" \\n \\u001F /"\n}'
    assert json.loads(render_error("é"))["error"] == "é"
    assert json.loads(render_error("é \ud800"))["error"] == "é ?"
