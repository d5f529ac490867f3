from __future__ import annotations

import numpy as np
import pytest
import requests

from pierhead.service.response import ModelResponse


def refuse_to_write() -> bytes:
    raise AssertionError("nobody reads the JSON")


def response(status: int, content: bytes) -> ModelResponse:
    return ModelResponse(status, lambda: content, url="http://127.0.0.1:8501/v1/models/a:predict")


def test_outputs_cost_no_json() -> None:
    outputs = {"y": np.array([2.5], np.float32)}

    answer = ModelResponse(200, refuse_to_write, url="", outputs=outputs)

    assert answer.ok
    assert answer.headers["content-type"] == "application/json"
    assert answer.outputs["y"].tolist() == [2.5]
    with pytest.raises(AssertionError):
        _ = answer.text


def test_json_is_written_once() -> None:
    writes = []

    def write() -> bytes:
        writes.append(1)
        return b'{"predictions": [1]}'

    answer = ModelResponse(200, write, url="")

    assert answer.json() == {"predictions": [1]}
    assert answer.text == '{"predictions": [1]}'
    assert b"".join(answer.iter_content(4)) == answer.content
    assert writes == [1]


def test_error_is_falsy_and_raises_what_requests_raises() -> None:
    answer = response(404, b'{"error": "none"}')

    assert not answer.ok
    assert not answer
    assert answer.reason == "Not Found"
    assert answer.outputs == {}
    with pytest.raises(requests.HTTPError, match=r"404 Not Found for url: .*none"):
        answer.raise_for_status()


def test_success_raises_nothing() -> None:
    response(200, b"{}").raise_for_status()
