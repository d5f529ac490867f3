"""SageMaker's side of the formats: bodies of any supported media type to predict requests, answers to bodies.

Three tables, `TEXTS`, `ARRAYS` and `WRITERS`, and the list of raw types are all that knows which media types
there are. A JSON body that is one object with `instances`, `inputs` or `examples` is a whole request. What
else a body means (SageMaker's platform contract, section 8):

- JSON: a list of lists, or of objects, is a list of instances; every other value is one instance; of several
  values each is one.
- JSON Lines: every value is one instance.
- CSV: every row is one instance.
- numpy's files: the only input, or the inputs by name (`array_documents`).
- Raw types: the bytes of the only input, which must be a string (`raw_document`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pierhead.errors import UnsupportedMediaType
from pierhead.formats.array_answers import render_archive, render_array
from pierhead.formats.array_documents import ArchiveDocument, ArrayDocument
from pierhead.formats.charsets import utf8_body
from pierhead.formats.csv_rows import read_rows, render_rows
from pierhead.formats.documents import Document
from pierhead.formats.encodings import LARGEST_DECOMPRESSED
from pierhead.formats.json_document import Json
from pierhead.formats.json_lines import read_values, render_lines
from pierhead.formats.json_tensors import invalid
from pierhead.formats.media_types import CSV, JSON, JSON_LINES, NPY, NPZ, RAW, choose, is_raw, media_type
from pierhead.formats.npy import read_npy
from pierhead.formats.npz import read_npz
from pierhead.formats.numeric_array import NumericArray
from pierhead.formats.predict_json import Layout, predict_document, render_predict
from pierhead.formats.raw_document import RawDocument
from pierhead.formats.tensors import Array

__all__ = ["parse_payload", "render_payload", "response_type"]

REQUEST_KEYS = ("instances", "inputs", "examples")


def parse_payload(body: bytes, content_type: str | None, largest: int = LARGEST_DECOMPRESSED) -> Document:
    """Return the predict request that a body is or stands for; a missing type is JSON.

    `largest` is in bytes and bounds what is decompressed. Raises UnsupportedMediaType, PayloadTooLarge, and
    ServingError (INVALID_ARGUMENT) where the body is not of its type or is empty.
    """
    name = media_type(content_type or "") or JSON
    if name in TEXTS:
        return predict_document(TEXTS[name](utf8_body(body, content_type or "")))
    if name not in ARRAYS and not is_raw(name):
        supported = f"{GENERAL_TYPES}, and for a model with one string input {', '.join(RAW)}"
        raise UnsupportedMediaType(f"Content-Type {name} cannot be read; supported: {supported}")
    if not body:
        raise invalid("the body is empty")
    return ARRAYS[name](body, largest) if name in ARRAYS else RawDocument(body, name, GENERAL_TYPES)


def response_type(accept: str | None, default: str = JSON) -> str:
    """Return the media type to answer with, never a wildcard.

    `default` stands in for a missing header and is what `*/*` means. Raises NotAcceptable where nothing
    that is accepted can be written.
    """
    preferred = media_type(default)
    others = [name for name in WRITERS if name != preferred]
    supported = [preferred, *others] if preferred in WRITERS else others
    return choose(accept if accept and accept.strip() else default, supported)


def render_payload(outputs: Mapping[str, Array], layout: Layout, media_type: str) -> bytes:
    """Return the answer's body in a type that `response_type` gave.

    JSON is laid out as the request was. JSON Lines and CSV hold a line for each instance; in them a scalar
    output of a columnar request is one instance. Outputs stand in the order of their names: over gRPC they
    come in any. Raises ServingError, or NotAcceptable for arrays, where the type cannot hold the outputs.
    """
    return WRITERS[media_type]({name: outputs[name] for name in sorted(outputs)}, layout)


def _read_json(body: bytes) -> Json:
    values = _values(body)
    if isinstance(values, NumericArray):
        return {"instances": values}
    if len(values) > 1:
        return {"instances": _instances(values)}
    (value,) = values
    if _is_request(value) or _is_batch(value):
        return value if _is_request(value) else {"instances": value}
    return {"instances": values}


def _read_json_lines(body: bytes) -> Json:
    values = _values(body)
    if not isinstance(values, NumericArray) and len(values) == 1 and _is_request(values[0]):
        return values[0]
    return {"instances": _instances(values)}


def _read_csv(body: bytes) -> Json:
    return {"instances": read_rows(body)}


def _values(body: bytes) -> list[Json] | NumericArray:
    if not body.strip():
        raise invalid("JSON Parse error: The document is empty")
    return read_values(body)


def _instances(values: list[Json] | NumericArray) -> Json:
    """Return the values; raise ServingError for several whole requests, which have no one answer."""
    if not isinstance(values, NumericArray) and any(_is_request(value) for value in values):
        raise invalid("a whole predict request must be the only value of a body")
    return values


def _is_request(value: Json) -> bool:
    return isinstance(value, dict) and any(key in value for key in REQUEST_KEYS)


def _is_batch(value: Json) -> bool:
    if isinstance(value, NumericArray):
        return value.array.ndim > 1
    return isinstance(value, list) and bool(value) and isinstance(value[0], (list, dict, NumericArray))


def _read_array(body: bytes, _largest: int) -> Document:
    return ArrayDocument(read_npy(body))


def _read_archive(body: bytes, largest: int) -> Document:
    return ArchiveDocument(read_npz(body, largest))


def _write_json(outputs: Mapping[str, Array], layout: Layout) -> bytes:
    return render_predict(outputs, layout)


def _write_json_lines(outputs: Mapping[str, Array], layout: Layout) -> bytes:
    return render_lines(_rows(outputs, layout))


def _write_csv(outputs: Mapping[str, Array], layout: Layout) -> bytes:
    return render_rows(_rows(outputs, layout))


def _write_array(outputs: Mapping[str, Array], _layout: Layout) -> bytes:
    return render_array(outputs)


def _write_archive(outputs: Mapping[str, Array], _layout: Layout) -> bytes:
    return render_archive(outputs)


def _rows(outputs: Mapping[str, Array], layout: Layout) -> Mapping[str, Array]:
    if layout is Layout.ROW:
        return outputs
    return {name: np.atleast_1d(array) for name, array in outputs.items()}


TEXTS: dict[str, Callable[[bytes], Json]] = {
    JSON: _read_json,
    **dict.fromkeys(JSON_LINES, _read_json_lines),
    CSV: _read_csv,
}
ARRAYS: dict[str, Callable[[bytes, int], Document]] = {NPY: _read_array, NPZ: _read_archive}
GENERAL_TYPES = ", ".join([*TEXTS, *ARRAYS])
WRITERS: dict[str, Callable[[Mapping[str, Array], Layout], bytes]] = {
    JSON: _write_json,
    **dict.fromkeys(JSON_LINES, _write_json_lines),
    CSV: _write_csv,
    NPY: _write_array,
    NPZ: _write_archive,
}
