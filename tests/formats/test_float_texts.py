"""Text made of many float32 values at a time is, value by value, that of the rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pierhead.formats.float_texts import float32_texts
from pierhead.formats.json_writing import scalar_texts
from pierhead.formats.tensors import Array

NAMED = {"nan": b"NaN", "inf": b"Infinity", "-inf": b"-Infinity"}


def by_rule(value: float) -> bytes:
    """Section 6 of the contract for float32, word for word."""
    text = f"{value:.6g}"
    with np.errstate(over="ignore"):
        if np.float32(text) != value:
            text = f"{value:.9g}"
    return NAMED.get(text, (text if "." in text or "e" in text else f"{text}.0").encode())


def float32(values: object) -> Array:
    return np.asarray(values, np.float32)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_any_bits_are_written_by_the_rule(seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, 1000, np.uint32).view(np.float32)

    assert [by_rule(value) for value in bits.tolist()] == float32_texts(bits, by_rule)


@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-16, 24))
@settings(max_examples=60, deadline=None)
def test_values_of_one_magnitude_are_written_by_the_rule(seed: int, exponent: int) -> None:
    random = np.random.default_rng(seed)
    digits = random.integers(1, 10 ** random.integers(1, 10, 400))
    values = float32(
        digits / 10.0 ** np.floor(np.log10(digits)) * 10.0**exponent * random.choice([-1, 1], 400)
    )

    assert [by_rule(value) for value in values.tolist()] == float32_texts(values, by_rule)


@pytest.mark.parametrize(
    "values",
    [
        2.0 ** np.arange(-149, 128),
        np.arange(-3000, 3000) / 1024,
        np.arange(0, 100_000, 37) / 1e6,
        np.arange(999_000, 1_001_000),
        np.arange(99_999_000, 100_001_000, 5),
        np.nextafter(float32(10.0 ** np.arange(-30, 30)), np.float32(0)),
        np.nextafter(float32(10.0 ** np.arange(-30, 30)), np.float32(np.inf)),
        [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, 3.4028235e38],
    ],
    ids=["powers", "ties", "short", "sixth", "ninth", "below", "above", "special"],
)
def test_values_at_the_borders_are_written_by_the_rule(values: object) -> None:
    array = float32(values)

    assert [by_rule(value) for value in array.tolist()] == float32_texts(array, by_rule)


def test_hardly_any_ordinary_value_needs_help() -> None:
    helped: list[float] = []

    def write(value: float) -> bytes:
        helped.append(value)
        return by_rule(value)

    float32_texts(float32(np.random.default_rng(1).standard_normal(20_000)), write)

    assert len(helped) < 20


def test_long_arrays_are_written_in_order() -> None:
    values = float32(np.arange(40_000) / 8)

    assert values.tolist() == [float(text) for text in scalar_texts(values)]
