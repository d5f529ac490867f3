from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tensor_protos import (
    DTYPE_NUMBERS,
    NUMPY_DTYPES,
    read_tensor,
    write_tensor,
    write_typed_tensor,
)

ARRAYS = {
    name: np.array([[0, 1, 1], [1, 0, 3]]).astype(dtype)
    for name, dtype in NUMPY_DTYPES.items()
    if name != "DT_STRING"
} | {"DT_STRING": np.array([[b"a", b"\xff", b""]], object)}


@pytest.fixture(scope="module")
def message() -> Any:
    return type(import_serving_stubs().predict.PredictRequest().inputs["x"])


def proto_of(message: Any, dtype: str, dims: list[int], **fields: Any) -> Any:
    proto = message(dtype=DTYPE_NUMBERS[dtype], **fields)
    proto.tensor_shape.SetInParent()
    for size in dims:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("write", [write_tensor, write_typed_tensor])
def test_every_dtype_comes_back(name: str, write: Any, message: Any) -> None:
    proto = message()
    write(ARRAYS[name], proto)
    actual = read_tensor(message.FromString(proto.SerializeToString()))

    assert DTYPE_NUMBERS[name] == proto.dtype
    assert ARRAYS[name].dtype == actual.dtype
    np.testing.assert_array_equal(ARRAYS[name], actual)


@pytest.mark.parametrize("array", [np.array(1.5, np.float32), np.zeros((2, 0)), np.arange(6).reshape(2, 3).T])
@pytest.mark.parametrize("write", [write_tensor, write_typed_tensor])
def test_every_shape_comes_back(array: Array, write: Any, message: Any) -> None:
    proto = message()
    write(array, proto)

    np.testing.assert_array_equal(array, read_tensor(proto), strict=True)


def test_numbers_go_into_content_and_answers_into_typed_fields(message: Any) -> None:
    request, answer = message(), message()
    write_tensor(np.array([1, 2], np.float32), request)
    write_typed_tensor(np.array([1, 2], np.float32), answer)

    assert (len(request.tensor_content), list(request.float_val)) == (8, [])
    assert (len(answer.tensor_content), list(answer.float_val)) == (0, [1, 2])


def test_content_of_a_wrong_length_is_refused(message: Any) -> None:
    with pytest.raises(ServingError, match=r"^tensor parsing error: images$") as raised:
        read_tensor(proto_of(message, "DT_FLOAT", [2], tensor_content=b"\0" * 7), "images")

    assert Code.INVALID_ARGUMENT is raised.value.code


@pytest.mark.parametrize(
    ("given", "expected"),
    [([1, 2], [1, 2, 2, 2]), ([], [0, 0, 0, 0]), ([1, 2, 3, 4, 5], [1, 2, 3, 4])],
)
def test_typed_values_are_filled_up_with_the_last(
    given: list[int], expected: list[int], message: Any
) -> None:
    assert expected == read_tensor(proto_of(message, "DT_INT32", [4], int_val=given)).tolist()


def test_missing_strings_are_empty(message: Any) -> None:
    assert read_tensor(proto_of(message, "DT_STRING", [2])).tolist() == [b"", b""]
    assert read_tensor(proto_of(message, "DT_STRING", [2], string_val=[b"a"])).tolist() == [b"a", b"a"]


def test_typed_field_of_another_dtype_holds_no_values(message: Any) -> None:
    assert read_tensor(proto_of(message, "DT_FLOAT", [1], int_val=[7])).tolist() == [0.0]


def test_values_too_wide_for_a_narrow_dtype_wrap_around(message: Any) -> None:
    assert read_tensor(proto_of(message, "DT_INT8", [1], int_val=[300])).tolist() == [44]


@pytest.mark.parametrize("dims", [[-1], [2, -3], [1 << 40], [1 << 62, 1 << 62]])
def test_impossible_shapes_are_refused(dims: list[int], message: Any) -> None:
    with pytest.raises(ServingError, match="tensor parsing error"):
        read_tensor(proto_of(message, "DT_FLOAT", dims, float_val=[1]))


@pytest.mark.parametrize("dtype", [0, 20, 99])
def test_dtypes_without_values_are_refused(dtype: int, message: Any) -> None:
    with pytest.raises(ServingError, match="tensor parsing error"):
        read_tensor(message(dtype=dtype))
