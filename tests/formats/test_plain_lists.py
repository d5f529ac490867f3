"""What the quick way makes of lists is what the exact one makes of them, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pierhead.errors import ServingError
from pierhead.formats.json_tensors import INT32, INTEGER_BOUNDS, INTEGER_DTYPES, _exact_tensor
from pierhead.formats.plain_lists import plain_tensor

SCALARS = {
    "DT_FLOAT": st.one_of(st.floats(), st.integers(-(2**63), 2**64 - 1)),
    "DT_DOUBLE": st.one_of(st.floats(), st.integers(-(2**63), 2**64 - 1)),
    "DT_INT8": st.integers(-300, 300),
    "DT_INT32": st.integers(-(2**31) - 1, 2**31),
    "DT_INT64": st.integers(-(2**63), 2**63),
    "DT_UINT64": st.integers(-1, 2**64 - 1),
    "DT_BOOL": st.booleans(),
    "DT_STRING": st.text(),
    "DT_HALF": st.floats(),
}
ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, 1, 0.5, "a", {"b64": "YQ=="}, []])


def quick(value: list[Any], dtype: str) -> Any:
    bounds = INTEGER_BOUNDS.get(dtype, INT32) if dtype in INTEGER_DTYPES else None
    return plain_tensor(value, dtype, bounds)


@given(
    data=st.data(),
    dtype=st.sampled_from(list(SCALARS)),
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_quick_and_exact_tensors_agree(data: st.DataObject, dtype: str, shape: list[int]) -> None:
    scalar = st.one_of(SCALARS[dtype], ODD) if data.draw(st.integers(0, 3)) == 0 else SCALARS[dtype]

    def nested(dims: list[int]) -> Any:
        return [nested(dims[1:]) for _ in range(dims[0])] if dims else data.draw(scalar)

    value = nested(shape)
    array = quick(value, dtype)
    if array is None:
        return
    exact = _exact_tensor(value, dtype)

    assert (exact.dtype, exact.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(exact, array)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([], "DT_FLOAT"),
        ([[], []], "DT_FLOAT"),
        ([[1], [1, 2]], "DT_FLOAT"),
        ([[1], 2], "DT_FLOAT"),
        ([True], "DT_FLOAT"),
        ([1.0], "DT_INT32"),
        ([2**31], "DT_INT32"),
        ([-1], "DT_UINT64"),
        ([1], "DT_BOOL"),
        ([{"b64": "YQ=="}], "DT_STRING"),
        ([1.0], "DT_HALF"),
    ],
)
def test_anything_else_is_left_to_the_exact_way(value: list[Any], dtype: str) -> None:
    assert quick(value, dtype) is None


def test_quick_refusals_are_told_by_the_exact_way() -> None:
    with pytest.raises(ServingError, match="unexpected size: 2"):
        _exact_tensor([[1], [1, 2]], "DT_FLOAT")
