from __future__ import annotations

import io

import numpy as np
import pytest
from ml_dtypes import bfloat16

from pierhead.errors import NotAcceptable
from pierhead.formats.payloads import render_payload
from pierhead.formats.predict_json import Layout
from pierhead.formats.tensors import Array

NPY, NPZ = "application/x-npy", "application/x-npz"


def written(array: Array, name: str = "y") -> Array:
    found: Array = np.load(io.BytesIO(render_payload({name: array}, Layout.ROW, NPY)), allow_pickle=False)
    return found


@pytest.mark.parametrize(
    "array", [np.array([1.5, 2], np.float32), np.array(3), np.zeros((0, 2)), np.eye(3)[::2].T, np.array([1j])]
)
def test_one_output_is_written_as_it_is(array: Array) -> None:
    np.testing.assert_array_equal(array, written(array), strict=True)


def test_text_is_numpy_text_and_bytes_are_base64() -> None:
    assert ["a", "é"] == written(np.array([b"a", "é".encode()], object)).tolist()
    assert ["/wA="] == written(np.array([b"\xff\0"], object), "raw_bytes").tolist()
    assert (0, "U") == (written(np.array([], object)).size, written(np.array([], object)).dtype.kind)


def test_bfloat16_becomes_float32() -> None:
    np.testing.assert_array_equal(
        np.array([1.5], np.float32), written(np.array([1.5], bfloat16)), strict=True
    )


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([b"\xff"], "is not UTF-8"),
        ([b"a\0"], "ends with a NUL"),
        ([b"a" * 100_000, *[b""] * 1000], "too long for an array of so many"),
    ],
)
@pytest.mark.parametrize("media_type", [NPY, NPZ])
def test_strings_that_numpy_cannot_hold_are_refused(texts: list[bytes], reason: str, media_type: str) -> None:
    with pytest.raises(NotAcceptable, match=f"output y .*{reason}.*accept application/json"):
        render_payload({"y": np.array(texts, object)}, Layout.ROW, media_type)


def test_several_outputs_are_no_array() -> None:
    outputs = {"b": np.zeros(1), "a": np.zeros(2)}

    with pytest.raises(NotAcceptable, match=r"2 outputs \(a, b\): accept application/x-npz"):
        render_payload(outputs, Layout.ROW, NPY)
    with np.load(io.BytesIO(render_payload(outputs, Layout.ROW, NPZ))) as archive:
        assert ["a", "b"] == archive.files


def test_archive_is_the_same_whenever_it_is_written_and_in_whatever_order() -> None:
    first = render_payload({"file": np.zeros(1), "b": np.zeros(2)}, Layout.ROW, NPZ)

    assert first == render_payload({"b": np.zeros(2), "file": np.zeros(1)}, Layout.ROW, NPZ)


@pytest.mark.parametrize("media_type", ["application/json", "application/jsonlines"])
def test_outputs_stand_in_the_order_of_their_names(media_type: str) -> None:
    body = render_payload({"b": np.zeros(1), "a": np.zeros(1)}, Layout.ROW, media_type)

    assert body.index(b'"a"') < body.index(b'"b"')
