"""The JSON conformance cases that a request to a server can show, and the models that show them.

A request case goes to a model that echoes the case's signature; a response case to a signature of the model
`answers`, which returns the case's tensors whatever it is given. Left out are, by rule: inputs whose meaning
the reference leaves undefined (`quirk`); sentences that no request makes a server say (`error`); results for
no example and answers without an output, because no request has the one and no model the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.formats.test_predict_json import array_of

from pierhead.formats.tensors import Array

Case = dict[str, Any]
FILE = Path(__file__).parents[1] / "formats" / "tfs_json.jsonl"
ANSWERS = "answers"
CLASSIFIER = "classifier"
REGRESSOR = "regressor"


def shown_cases(direction: str, *methods: str) -> list[Case]:
    """Return the cases of a direction and of methods that a server can show."""
    cases = [json.loads(line) for line in FILE.read_text().splitlines()]
    return [
        case
        for case in cases
        if case["direction"] == direction and case["method"] in methods and is_shown(case)
    ]


def is_shown(case: Case) -> bool:
    is_empty = case["direction"] == "response" and not (case.get("tensors") or case.get("result"))
    return not (case.get("quirk") or case["method"] == "error" or is_empty)


def echo_models() -> dict[str, dict[str, str]]:
    """Return the echoing models: dtypes by the name of an input, by the model's name."""
    cases = shown_cases("request", "predict")
    return {
        model_of(case): {name: spec["dtype"] for name, spec in case["signature"].items()} for case in cases
    }


def model_of(case: Case) -> str:
    """Return the name of the model that echoes a case's signature."""
    parts = [f"{name}-{spec['dtype'].lower()}" for name, spec in sorted(case["signature"].items())]
    return "_".join(["echo", *parts])


def signature_names() -> list[str]:
    """Return the signatures that the cases name."""
    cases = shown_cases("request", "predict", "classify", "regress")
    return sorted({case["expect"].get("signature_name") or "serving_default" for case in cases})


def tensors_of(case: Case, tensors: dict[str, Any]) -> dict[str, Array]:
    """Return a case's tensors in the order of their names, as a model sees them."""
    seen = case.get("model_sees", {})
    return {name: _array(spec, seen.get(name, spec["values"])) for name, spec in sorted(tensors.items())}


def _array(spec: dict[str, Any], values: list[Any]) -> Array:
    size = 1
    for dim in spec["shape"]:
        size *= dim
    return array_of(spec["dtype"], spec["shape"], values or [0] * size)
