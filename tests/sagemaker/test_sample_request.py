"""The request that is shown to try: a file of the artifact, or one made from the signature."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from pierhead_sagemaker.sample_request import (
    Sample,
    curl_with_body,
    curl_with_sample,
    find_sample,
    make_body,
)
from pierhead_sagemaker.signatures import Signature, Tensor

URL = "http://127.0.0.1:8080/invocations"


def signature(*inputs: Tensor, name: str = "serving_default") -> Signature:
    return Signature(name, inputs, ())


BODIES: dict[str, tuple[tuple[Tensor, ...], dict[str, Any]]] = {
    "a float for each row": ((Tensor("x", "float32", (-1,)),), {"instances": [1.0, 2.0, 5.0]}),
    "an integer for each row": ((Tensor("x", "int64", (-1,)),), {"instances": [1, 2, 5]}),
    "a string for each row": ((Tensor("x", "string", (-1,)),), {"instances": ["text"]}),
    "a bool for each row": ((Tensor("x", "bool", (-1,)),), {"instances": [False]}),
    "a row of a known size": ((Tensor("x", "float32", (-1, 2, 1)),), {"instances": [[[0.0], [0.0]]]}),
    "an unknown dimension": ((Tensor("x", "int32", (-1, -1)),), {"instances": [[0]]}),
    "unknown rank": ((Tensor("x", "float64", None),), {"instances": [1.0, 2.0, 5.0]}),
    "several inputs": (
        (Tensor("a", "float32", (-1, 2)), Tensor("b", "string", (-1,))),
        {"instances": [{"a": [0.0, 0.0], "b": "text"}]},
    ),
    "a scalar": ((Tensor("x", "float32", ()),), {"inputs": 0.0}),
    "a fixed batch": ((Tensor("x", "uint8", (2, -1)),), {"inputs": [[0], [0]]}),
    "one of two without a batch": (
        (Tensor("a", "float32", (-1, 1)), Tensor("b", "bool", ())),
        {"inputs": {"a": [[0.0]], "b": False}},
    ),
    "no inputs": ((), {"inputs": {}}),
}


@pytest.mark.parametrize(("inputs", "expected"), BODIES.values(), ids=BODIES)
def test_body_fits_the_signature(inputs: tuple[Tensor, ...], expected: dict[str, Any]) -> None:
    assert expected == make_body(signature(*inputs))


def test_other_signature_than_the_default_is_named() -> None:
    expected = {"signature_name": "predict", "instances": ["text"]}

    assert expected == make_body(signature(Tensor("x", "string", (-1,)), name="predict"))


def test_short_body_stands_in_the_line(tmp_path: Path) -> None:
    line = curl_with_body(URL, signature(Tensor("x", "float32", (-1,))), tmp_path)

    expected = (
        f"curl -s -X POST {URL} -H 'Content-Type: application/json' -d '{{\"instances\": [1.0, 2.0, 5.0]}}'"
    )
    assert expected == line
    assert list(tmp_path.iterdir()) == []


def test_long_body_goes_into_a_file(tmp_path: Path) -> None:
    words = shlex.split(curl_with_body(URL, signature(Tensor("x", "float32", (-1, 100))), tmp_path))

    assert ["--data-binary", f"@{tmp_path}/request.json"] == words[-2:]
    assert json.loads((tmp_path / "request.json").read_text()) == {"instances": [[0.0] * 100]}


def test_words_are_quoted_for_the_shell() -> None:
    words = shlex.split(curl_with_sample(URL, Sample(Path("/it's here/sample.wav"), "audio/wav")))

    assert words[-4:] == ["-H", "Content-Type: audio/wav", "--data-binary", "@/it's here/sample.wav"]


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("sample.json", "application/json"),
        ("sample.jsonl", "application/jsonlines"),
        ("sample.csv", "text/csv"),
        ("sample.wav", "audio/wav"),
        ("sample.npy", "application/x-npy"),
        ("sample.jpg", "image/jpeg"),
        ("sample.png", "image/png"),
        ("sample.txt", "text/plain"),
    ],
)
def test_ending_of_a_sample_tells_its_type(name: str, media_type: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()

    assert Sample(tmp_path / name, media_type) == find_sample(tmp_path)


def test_other_files_are_no_sample(tmp_path: Path) -> None:
    (tmp_path / "example.json").touch()

    assert find_sample(tmp_path) is None
