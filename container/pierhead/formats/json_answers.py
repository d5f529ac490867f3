"""JSON on the way to and from a model server's REST API, where no signature is known to make tensors by.

A predict request is written as JSON, and the JSON answer is rewritten as lines: one for each instance.
Numbers keep the model server's spelling.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pierhead.formats.csv_rows import cell_text
from pierhead.formats.json_document import Json, exact
from pierhead.formats.json_writing import encoded, list_text, object_text, quoted
from pierhead.formats.media_types import CSV, JSON
from pierhead.formats.numeric_array import NumericArray

__all__ = ["render_document", "rewrite_answer"]

RESULT_KEYS = ("predictions", "outputs", "results")
Value: TypeAlias = Any


class Spelled(str):
    """A number as the model server wrote it."""

    __slots__ = ()


def render_document(root: Mapping[str, Json]) -> bytes:
    """Return the JSON text of a predict request."""
    members = [(quoted(encoded(key)), _document_text(value)) for key, value in root.items()]
    return object_text(members, None)


def rewrite_answer(body: bytes, media_type: str) -> tuple[bytes, str]:
    """Return a JSON answer in another media type, and that type; as it is where it has no instances."""
    if media_type == JSON:
        return body, JSON
    try:
        instances = _instances(_parsed(body))
    except (ValueError, RecursionError):
        return body, JSON
    line = _csv_line if media_type == CSV else _json_text
    return b"".join(line(instance) + b"\n" for instance in instances), media_type


def _document_text(value: Json) -> bytes:
    if isinstance(value, NumericArray):
        return value.text
    return encoded(json.dumps(value, ensure_ascii=False, default=exact))


def _parsed(body: bytes) -> Value:
    text = body.decode(errors="surrogateescape")
    return json.loads(text, parse_float=Spelled, parse_int=Spelled, parse_constant=Spelled)


def _instances(answer: Value) -> list[Value]:
    """Return what stands in a line each; raise ValueError where the answer has no such thing."""
    found = [answer[key] for key in RESULT_KEYS if isinstance(answer, dict) and key in answer]
    if not found:
        raise ValueError("neither predictions, outputs nor results")
    (value,) = found
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or not value:
        return [value]
    columns = [column if isinstance(column, list) else [column] for column in value.values()]
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]


def _json_text(value: Value) -> bytes:
    if isinstance(value, Spelled):
        return value.encode()
    if isinstance(value, list):
        return list_text([_json_text(each) for each in value], None)
    if isinstance(value, dict):
        return object_text([(quoted(encoded(key)), _json_text(each)) for key, each in value.items()], None)
    return quoted(encoded(value)) if isinstance(value, str) else json.dumps(value).encode()


def _csv_line(value: Value) -> bytes:
    # A line of one empty text would otherwise be a blank line.
    return b",".join(_cells(value)) or b'""'


def _cells(value: Value) -> Iterator[bytes]:
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, list):
        for each in value:
            yield from _cells(each)
    elif isinstance(value, str):
        yield cell_text(encoded(value))
    else:
        yield json.dumps(value).encode()
