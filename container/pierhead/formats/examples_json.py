"""TensorFlow Serving's classify and regress requests and answers in JSON: tf.Examples, and results.

Rules: TensorFlow Serving's contract, sections 2.7 and 2.8. Unlike predict requests these are
converted whole before the model is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pierhead.formats.json_document import Json, exact
from pierhead.formats.json_echo import echo, kind
from pierhead.formats.json_tensors import invalid, is_base64, string_bytes
from pierhead.formats.json_writing import list_text, object_text, quoted, scalar_texts
from pierhead.formats.predict_json import PredictDocument, parse_predict
from pierhead.formats.tensors import Array

__all__ = [
    "Examples",
    "Feature",
    "parse_examples",
    "read_examples",
    "render_classifications",
    "render_regressions",
]

LARGEST_INT64 = 2**63 - 1
# The kinds of tf.Feature, and what messages call them.
LABELS = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}


@dataclass(frozen=True)
class Feature:
    """A feature's values; `kind` is the field of tf.Feature that holds them, None where there are none."""

    kind: str | None
    values: tuple[bytes | float | int, ...]


@dataclass(frozen=True)
class Examples:
    """The examples of a request by their features' names; `context` holds the features common to all."""

    signature_name: str
    examples: tuple[dict[str, Feature], ...]
    context: dict[str, Feature] | None


def parse_examples(body: bytes) -> Examples:
    """Return a classify or regress request; raise ServingError (INVALID_ARGUMENT) by the contract's rules."""
    return read_examples(parse_predict(body))


def read_examples(document: PredictDocument) -> Examples:
    """Return the request that a JSON document is; raise ServingError where it is none."""
    root = document.root
    context = _features(root["context"]) if "context" in root else None
    if "examples" not in root:
        problem = "When method is classify, key 'examples' is expected and was not found"
        raise invalid(f"JSON Value: {echo(root)} {problem}")
    examples = exact(root["examples"])
    if not isinstance(examples, list):
        raise invalid(f"JSON Value: {echo(root)} Expecting 'examples' value to be an list/array")
    if not examples:
        raise invalid(f"JSON Value: {echo(root)} 'examples' value is an empty array")
    return Examples(document.signature_name, tuple(_features(example) for example in examples), context)


def render_classifications(results: Sequence[Sequence[tuple[bytes, float]]]) -> bytes:
    """Return the answer's body for one list of (label, score) for each example; scores are float32."""
    if not results:
        raise invalid("Cannot convert empty ClassificationResults to JSON")
    rows = b", ".join(list_text([_class_text(*each) for each in classes], None) for classes in results)
    return object_text([(b'"results"', b"[" + rows + b"\n    ]")], 0)


def render_regressions(values: Array) -> bytes:
    """Return the answer's body for one float32 for each example."""
    if not values.size:
        raise invalid("Cannot convert empty RegressionResults to JSON")
    return object_text([(b'"results"', list_text(scalar_texts(values), None))], 0)


def _class_text(label: bytes, score: float) -> bytes:
    return list_text([quoted(label), *scalar_texts(np.array([score], np.float32))], None)


def _features(example: Json) -> dict[str, Feature]:
    if not isinstance(example, dict):
        raise invalid(f"Example must be JSON object but got JSON {kind(example)}")
    return {name: _feature(name, exact(value)) for name, value in example.items()}


def _feature(name: str, value: Json) -> Feature:
    elements = [_element(name, item) for item in (value if isinstance(value, list) else [value])]
    if not elements:
        return Feature(None, ())
    first = elements[0][0]
    if any(each != first for each, _ in elements):
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {LABELS[first]}")
    return Feature(first, tuple(value for _, value in elements))


def _element(name: str, value: Json) -> tuple[str, bytes | float | int]:
    """Return the kind of feature that a value belongs to, and its element."""
    if isinstance(value, str) or is_base64(value):
        return "bytes_list", string_bytes(value)
    if isinstance(value, float):
        return "float_list", value
    if not isinstance(value, int):
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {kind(value)}")
    if value > LARGEST_INT64:
        raise invalid(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
    return "int64_list", int(value)
