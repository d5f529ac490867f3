"""numpy's files as bodies: what the SDK's serializers send, and hostile ones."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest

from pierhead.errors import PayloadTooLarge, ServingError
from pierhead.formats.npy import read_npy
from pierhead.formats.payloads import parse_payload
from pierhead.formats.predict_json import Layout, PredictInputs
from pierhead.formats.tensors import Array, Signature, TensorSpec

NPY, NPZ = "application/x-npy", "application/x-npz"


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=True, **arrays)
    return stream.getvalue()


def file_of(header: str, elements: bytes = b"", version: int = 1) -> bytes:
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + elements


def plain(descr: str, shape: str, elements: bytes = b"") -> bytes:
    return file_of(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n", elements)


def signature(**inputs: str) -> Signature:
    return Signature("serving_default", "", {name: TensorSpec(of, None) for name, of in inputs.items()}, {})


def given(body: bytes, dtype: str = "DT_FLOAT") -> PredictInputs:
    return parse_payload(body, NPY).tensors(signature(x=dtype))


def tensor(body: bytes, dtype: str = "DT_FLOAT") -> Array:
    return given(body, dtype).arrays["x"]


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (np.array([1.5, 2]), "DT_FLOAT", np.array([1.5, 2], np.float32)),
        (np.array([1, 2]), "DT_FLOAT", np.array([1, 2], np.float32)),
        (np.array([1, 2]), "DT_INT32", np.array([1, 2], np.int32)),
        (np.array([True]), "DT_FLOAT", np.array([1], np.float32)),
        (np.array([1, 2], ">i8"), "DT_INT64", np.array([1, 2])),
        (np.arange(6.0).reshape(2, 3).T, "DT_DOUBLE", np.array([[0.0, 3], [1, 4], [2, 5]])),
        (np.zeros((0, 3)), "DT_DOUBLE", np.zeros((0, 3))),
        (np.array([1 + 2j]), "DT_COMPLEX64", np.array([1 + 2j], np.complex64)),
        (np.float64(3), "DT_HALF", np.array(3, np.float16)),
    ],
)
def test_array_takes_the_signature_s_dtype(array: Any, dtype: str, expected: Array) -> None:
    found = tensor(npy(array), dtype)

    np.testing.assert_array_equal(expected, found, strict=True)
    assert found.flags.c_contiguous


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(["a", "é\U0001f600"]), [b"a", "é\U0001f600".encode()]),
        (np.array(["ab"], ">U5"), [b"ab"]),
        (np.array([b"a\xff", b""]), [b"a\xff", b""]),
        (np.array([["a"], ["b"]]), [[b"a"], [b"b"]]),
        (np.zeros(0, "U3"), []),
    ],
)
def test_strings_become_bytes(array: Array, expected: Any) -> None:
    found = tensor(npy(array), "DT_STRING")

    assert (expected, "O") == (found.tolist(), found.dtype.kind)


def test_rows_of_an_array_are_instances_and_a_scalar_is_an_input() -> None:
    assert Layout.ROW is given(npy([1.0])).layout
    assert Layout.COLUMNAR is given(npy(1.0)).layout


@pytest.mark.parametrize(
    ("array", "dtype", "reason"),
    [
        (np.array([1.5]), "DT_INT64", "x: an array of float64 does not fit the input's type, int64"),
        (np.array(["a"]), "DT_FLOAT", "an array of <U1 does not fit the input's type, float"),
        (np.array([1]), "DT_STRING", "an array of int64 does not fit the input's type, string"),
        (np.array([1j]), "DT_FLOAT", "complex128 does not fit"),
        (np.array([3, 2**40]), "DT_INT32", "integers from 3 to 1099511627776 do not fit"),
        (np.array([1.5]), "DT_RESOURCE", "does not fit the input's type, resource"),
    ],
)
def test_array_of_another_kind_is_refused(array: Array, dtype: str, reason: str) -> None:
    with pytest.raises(ServingError, match=reason):
        tensor(npy(array), dtype)


def test_one_array_is_not_enough_for_two_inputs() -> None:
    with pytest.raises(ServingError, match=r"2 \(a, b\): send application/x-npz"):
        parse_payload(npy([1]), NPY).tensors(signature(a="DT_FLOAT", b="DT_FLOAT"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (npy(np.array([{}], object)), "pickles"),
        (npy(np.array([(1, 2.0)], "i4,f4")), "not that of one plain array"),
        (npy(np.array(["2020-01-01"], "M8[D]")), "cannot have the dtype <M8"),
        (plain("<f8", "(2,)", b"\0" * 8), r"shape \(2,\) of float64 takes 16 bytes, and 8 follow"),
        (plain("<f8", "(1,)", b"\0" * 9), "and 9 follow"),
        (plain("<f8", "(4611686018427387904, 16)"), "takes .* bytes, and 0 follow"),
        (plain("<U0", "(1000000000000,)"), "takes 0 bytes"),
        (plain("<U999999999", "(9,)"), "dtype"),
        (plain("<f3", "(1,)"), "no dtype <f3"),
        (plain("<f8", f"({'1,' * 65})", b"\0" * 8), "65 dimensions"),
        (plain("<f8", "(0, 9223372036854775807, 9223372036854775807)"), "no array of shape"),
        (plain("<f8", "(-1,)"), "header"),
        (plain("<f8", "(1"), "header"),
        (plain("<f8", f"({'9' * 4000},)"), "header"),
        (
            file_of("{'descr': __import__('os').system('false'), 'fortran_order': False, 'shape': ()}"),
            "header",
        ),
        (file_of("{'shape': (), 'shape': (), 'descr': '<f8'}", b"\0" * 8), "header"),
        (file_of("(" * 9000), "header"),
        (file_of("{}", version=4), "version"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "header is cut off or too long"),
        (b"\x93NUMPY", "version"),
        (b"[1.0]", "does not begin as one"),
        (plain("<U1", "(1,)", b"\xff\xff\xff\xff"), "no characters"),
        (plain("<U1", "(1,)", b"\x00\xd8\x00\x00"), "no characters"),
    ],
)
def test_hostile_array_is_refused_without_memory(body: bytes, reason: str) -> None:
    tracemalloc.start()
    with pytest.raises(ServingError, match=reason):
        tensor(body, "DT_STRING")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 1 << 20


@pytest.mark.parametrize("version", [1, 2, 3])
def test_header_may_have_any_order_and_version(version: int) -> None:
    header = '{"shape":(2,),"fortran_order":True,"descr":"<i2"}'

    assert read_npy(file_of(header, b"\1\0\2\0", version)).tolist() == [1, 2]


def test_archive_names_the_inputs() -> None:
    document = parse_payload(npz(a=np.array([1, 2]), b=np.array(["x"])), NPZ)
    inputs = document.tensors(signature(a="DT_FLOAT", b="DT_STRING"))

    assert {"a": [1.0, 2.0], "b": [b"x"]} == {name: array.tolist() for name, array in inputs.arrays.items()}
    assert Layout.COLUMNAR is inputs.layout


def test_archive_of_one_array_without_a_name_is_the_only_input() -> None:
    stream = io.BytesIO()
    np.savez(stream, np.array([1.0]))

    assert [1.0] == parse_payload(stream.getvalue(), NPZ).tensors(signature(x="DT_FLOAT")).arrays[
        "x"
    ].tolist()


def zipped(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return stream.getvalue()


WHOLE = npz(x=np.zeros(100))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (npz(y=np.zeros(1)), "the names of the inputs, x; found: y"),
        (npz(), "found: none"),
        (npz(x=np.array([{}], object)), "x: arrays of Python objects"),
        (npz(format=np.array(b"csr"), shape=np.zeros(2), data=np.zeros(1), indices=np.zeros(1)), "toarray"),
        (zipped(readme_txt=b"hello"), "readme.txt"),
        (zipped(x_npy=b"hello"), "x: the body is no array"),
        (zipped(zipfile.ZIP_LZMA, x_npy=npy(1)), "unusual way"),
        (WHOLE[:-30], "no archive"),
        (WHOLE.replace(b"PK\x03\x04", b"PK\x03\x05"), "no archive"),
        (WHOLE[:60] + b"\0\0\0\0" + WHOLE[64:], "no archive"),
        (b"PK", "no archive"),
        (b"PK\x01\x02" * 2000, "more than 1024 members"),
    ],
)
def test_archive_that_cannot_be_used_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ServingError, match=reason):
        parse_payload(body, NPZ).tensors(signature(x="DT_FLOAT"))


def test_archive_is_not_decompressed_beyond_the_limit() -> None:
    bomb = npz(x=np.zeros(1 << 23))
    tracemalloc.start()
    with pytest.raises(PayloadTooLarge, match="PIERHEAD_MAX_DECOMPRESSED_MB=1"):
        parse_payload(bomb, NPZ, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 4 << 20


def test_limit_is_for_all_members_together() -> None:
    with pytest.raises(PayloadTooLarge):
        parse_payload(npz(x=np.zeros(100), y=np.zeros(100)), NPZ, 1500)
