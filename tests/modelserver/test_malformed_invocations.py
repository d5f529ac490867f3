"""What is no HTTP is refused as TensorFlow Serving does, but below SageMaker's path in JSON."""

from __future__ import annotations

import json

import pytest

from pierhead.modelserver.invocations import malformed_invocation


def test_below_invocations_it_is_a_json_error() -> None:
    answer = malformed_invocation("/invocations/v1/models/m:predict")

    assert (400, "application/json", True) == (answer.status, answer.content_type, answer.closes)
    assert json.loads(answer.body)["error"]


@pytest.mark.parametrize("target", ["", "/v1/models/m:predict"])
def test_elsewhere_it_is_tensorflow_servings_page(target: str) -> None:
    answer = malformed_invocation(target)

    assert (400, "text/html", True) == (answer.status, answer.content_type, answer.closes)
