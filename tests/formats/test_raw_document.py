from __future__ import annotations

from typing import Any

import pytest

from pierhead.errors import ServingError, UnsupportedMediaType
from pierhead.formats.payloads import parse_payload
from pierhead.formats.predict_json import Layout
from pierhead.formats.tensors import Signature, TensorSpec

TYPES = [
    "application/octet-stream",
    "application/x-image",
    "application/x-tfexample",
    "text/plain; charset=utf-8",
    "image/jpeg",
    "Image/PNG",
    "audio/x-wav",
]


def signature(**inputs: TensorSpec) -> Signature:
    return Signature("serving_default", "", inputs, {})


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize(
    ("shape", "expected", "layout"),
    [
        (None, [b"\xff\0"], Layout.ROW),
        ((), b"\xff\0", Layout.COLUMNAR),
        ((-1,), [b"\xff\0"], Layout.ROW),
        ((-1, 1), [[b"\xff\0"]], Layout.ROW),
    ],
)
def test_body_is_the_only_string(
    content_type: str, shape: tuple[int, ...] | None, expected: Any, layout: Layout
) -> None:
    inputs = parse_payload(b"\xff\0", content_type).tensors(signature(x=TensorSpec("DT_STRING", shape)))

    assert (expected, layout) == (inputs.arrays["x"].tolist(), inputs.layout)


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize(
    ("inputs", "taken"),
    [
        ({"x": TensorSpec("DT_FLOAT", None)}, "x: float"),
        ({"b": TensorSpec("DT_STRING", None), "a": TensorSpec("DT_STRING", None)}, "a: string, b: string"),
        ({}, "none"),
    ],
)
def test_model_that_takes_anything_else_names_what_it_takes(
    content_type: str, inputs: dict[str, TensorSpec], taken: str
) -> None:
    name = content_type.partition(";")[0].lower()

    with pytest.raises(UnsupportedMediaType, match=f"{name} .*takes {taken}; supported: application/json"):
        parse_payload(b"x", content_type).tensors(signature(**inputs))


@pytest.mark.parametrize("content_type", TYPES)
def test_empty_body_is_refused(content_type: str) -> None:
    with pytest.raises(ServingError, match="the body is empty"):
        parse_payload(b"", content_type)
