"""TensorFlow Serving's predict requests and answers in JSON, row by row or column by column.

Rules: TensorFlow Serving's contract, sections 2.4, 2.5 and 2.8. A body is read in two steps, because the
model is looked up between them: text that is not JSON is refused before an unknown model, tensors of the
wrong type after it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from pierhead.errors import ServingError
from pierhead.formats.json_document import Json, exact, first_object
from pierhead.formats.json_echo import echo
from pierhead.formats.json_tensors import invalid, is_base64, tensor
from pierhead.formats.json_writing import (
    INDENT,
    has_bytes,
    list_text,
    nested_text,
    object_text,
    quoted,
    scalar_texts,
)
from pierhead.formats.numeric_array import NumericArray
from pierhead.formats.tensors import Array, Signature, TensorSpec

__all__ = [
    "Layout",
    "PredictDocument",
    "PredictInputs",
    "parse_predict",
    "predict_document",
    "render_error",
    "render_predict",
]


# Numbers whose texts are made at once: each takes some 50 bytes until it is joined with the others.
BLOCK = 1 << 16
GAP = b"\0"


class Layout(Enum):
    """How a request, and so its answer, lays tensors out: instance by instance, or tensor by tensor."""

    ROW = "row"
    COLUMNAR = "columnar"


@dataclass(frozen=True)
class PredictInputs:
    """The tensors of a request by the signature's names, and the layout they came in."""

    arrays: dict[str, Array]
    layout: Layout


@dataclass(frozen=True)
class PredictDocument:
    """A predict request that is JSON; `signature_name` is empty where it names none."""

    root: dict[str, Json]
    signature_name: str

    def tensors(self, signature: Signature) -> PredictInputs:
        """Return the tensors for all inputs of the signature; raise ServingError by the contract's rules."""
        row, columnar = "instances" in self.root, "inputs" in self.root
        if row and columnar:
            problem = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
            raise invalid(f"JSON Value: {echo(self.root)} {problem}")
        if not row and not columnar:
            raise invalid("Missing 'inputs' or 'instances' key")
        if not signature.inputs:
            raise invalid(f"Failed to get input map for signature: {self.signature_name or 'DEFAULT'}")
        if row:
            return PredictInputs(_row_tensors(self.root, signature.inputs), Layout.ROW)
        return PredictInputs(_columnar_tensors(self.root["inputs"], signature.inputs), Layout.COLUMNAR)


def parse_predict(body: bytes) -> PredictDocument:
    """Return the request; raise ServingError (INVALID_ARGUMENT) where the body is not a JSON object.

    What follows the object is ignored, as TensorFlow Serving ignores it.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    return predict_document(first_object(body))


def predict_document(root: Json) -> PredictDocument:
    """Return the request that a JSON value is; raise ServingError (INVALID_ARGUMENT) where it is none."""
    if not isinstance(root, dict):
        raise invalid(f"JSON Value: {echo(root)} Is not object")
    name = root.get("signature_name", "")
    if not isinstance(name, str):
        problem = "not formatted correctly. 'signature_name' key must be a string value."
        raise invalid(f"JSON Value: {echo(root)} {problem}")
    return PredictDocument(root, name)


def render_predict(outputs: Mapping[str, Array], layout: Layout) -> bytes:
    """Return the answer's body, byte for byte as TensorFlow Serving lays it out.

    Raises ServingError for outputs that JSON, or the row layout, cannot hold.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    if layout is Layout.ROW:
        head, tail = object_text([(b'"predictions"', GAP)], 0).split(GAP)
        return b"".join([head, *_predictions(outputs), tail])
    return object_text([(b'"outputs"', _outputs(outputs))], 0)


def render_error(message: str) -> bytes:
    """Return the body of an error: the message alone, JSON-escaped."""
    try:
        text = message.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        # A surrogate that stands for no byte.
        text = message.encode(errors="replace")
    return object_text([(b'"error"', quoted(text))], 0)


def instance_texts(outputs: Mapping[str, Array], level: int | None) -> list[bytes]:
    """Return one JSON text for each instance: the value of the only output, or an object of all.

    Objects stand within `level` containers, or on one line where it is None. Raises ServingError where the
    outputs have no common 0th dimension.
    """
    refuse_unequal_batches(outputs)
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return _element_texts(name, array, level, one_line=True)
    within = None if level is None else level + 1
    columns = [_element_texts(name, array, within, one_line=True) for name, array in outputs.items()]
    names = [quoted(name.encode()) for name in outputs]
    return [object_text(list(zip(names, row, strict=True)), level) for row in zip(*columns, strict=True)]


def refuse_unequal_batches(outputs: Mapping[str, Array]) -> None:
    """Raise ServingError (INVALID_ARGUMENT) where the outputs have no common 0th dimension."""
    batch: int | None = None
    for name, array in outputs.items():
        if not array.shape:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if batch is not None and len(array) != batch:
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {batch}")
        batch = len(array)


def _row_tensors(root: dict[str, Json], specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    instances = root["instances"]
    if isinstance(instances, NumericArray) and len(specs) == 1 and len(instances.array):
        ((name, spec),) = specs.items()
        try:
            return {name: tensor(instances, spec.dtype)}
        except ServingError:
            # The rows' own messages name the instance.
            instances = exact(instances)
    instances = exact(instances)
    if not isinstance(instances, list):
        raise invalid(f"JSON Value: {echo(root)} Expecting 'instances' to be an list/array")
    if not instances:
        raise invalid("No values in 'instances' array")
    if _is_named(instances[0]):
        return _named_rows(instances, specs)
    if len(specs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required "
            "as per tensorinfo_map"
        )
    return _plain_rows(instances, specs)


def _is_named(instance: Json) -> bool:
    return isinstance(instance, dict) and not is_base64(instance)


def _plain_rows(instances: list[Json], specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    ((name, spec),) = specs.items()
    column = _whole_column(instances, spec)
    if column is not None:
        return {name: column}
    rows: list[Array] = []
    for at, instance in enumerate(instances):
        if _is_named(instance):
            raise invalid(f"Expecting value/list but got object at item {at} of input list")
        _add_row(rows, instance, spec, f"Failed to process element: {at} of 'instances' list.")
    return {name: np.stack(rows)}


def _named_rows(instances: list[Json], specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    objects = [instance for instance in instances if isinstance(instance, dict)]
    if len(objects) == len(instances) and all(each.keys() == specs.keys() for each in objects):
        whole = {name: _whole_column([each[name] for each in objects], spec) for name, spec in specs.items()}
        columns = {name: column for name, column in whole.items() if column is not None}
        if len(columns) == len(specs):
            return columns
    return _named_rows_one_by_one(instances, specs)


def _named_rows_one_by_one(instances: list[Json], specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    columns: dict[str, list[Array]] = {name: [] for name in specs}
    for at, instance in enumerate(instances):
        if not isinstance(instance, dict):
            raise invalid(f"Expecting object but got list at item {at} of input list")
        for name, value in instance.items():
            where = f"Failed to process element: {at} key: {name} of 'instances' list."
            if name not in specs:
                problem = f"JSON object: does not have named input: {name}"
                raise invalid(f"{where} Error: INVALID_ARGUMENT: {problem}")
            _add_row(columns[name], value, specs[name], where)
        if len(instance) != len(specs):
            raise invalid(
                f"Failed to process element: {at} of 'instances' list. JSON object: {echo(instance)} "
                f"keys must be equal to: {','.join(sorted(specs))}"
            )
    return {name: np.stack(rows) for name, rows in columns.items()}


def _whole_column(values: list[Json], spec: TensorSpec) -> Array | None:
    """Return an input of all instances, converted at once; None where they have to be looked at one by one.

    That is so for arrays that are numpy's already, and where an error has to name the instance.
    """
    if any(isinstance(value, NumericArray) for value in values):
        return None
    try:
        return tensor(values, spec.dtype)
    except ServingError:
        return None


def _add_row(rows: list[Array], value: Json, spec: TensorSpec, where: str) -> None:
    """Append one instance's tensor; its errors are told as INVALID_ARGUMENT at the place `where`."""
    try:
        row = tensor(value, spec.dtype)
        if rows and row.size != rows[0].size:
            raise invalid(f"Expecting tensor size: {rows[0].size} but got: {row.size}")
        if rows and row.shape != rows[0].shape:
            raise invalid(f"Expecting shape {_shape_text(rows[0])} but got: {_shape_text(row)}")
    except ServingError as problem:
        raise invalid(f"{where} Error: {problem.code.name}: {problem.message}") from problem
    rows.append(row)


def _shape_text(array: Array) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _columnar_tensors(value: Json, specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    if not isinstance(value, dict) or is_base64(value):
        if len(specs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required "
                "as per tensorinfo_map"
            )
        ((name, spec),) = specs.items()
        return {name: tensor(value, spec.dtype)}
    for name in specs:
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: tensor(value[name], spec.dtype) for name, spec in specs.items()}


def _predictions(outputs: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield the text of all instances in pieces; a large answer exists twice at most, in them and joined."""
    refuse_unequal_batches(outputs)
    rows = len(next(iter(outputs.values())))
    if not rows:
        yield b"[]"
        return
    separator = b", " if len(outputs) == 1 else b",\n" + 2 * INDENT
    yield b"[" if len(outputs) == 1 else b"[\n" + 2 * INDENT
    step = _rows_in_block(rows, sum(array.size for array in outputs.values()))
    for start in range(0, rows, step):
        yield separator if start else b""
        block = {name: array[start : start + step] for name, array in outputs.items()}
        yield separator.join(instance_texts(block, 2))
    yield b"\n" + INDENT + b"]"


def _outputs(outputs: Mapping[str, Array]) -> bytes:
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return _value_text(name, array, 1)
    members = [(quoted(name.encode()), _value_text(name, array, 2)) for name, array in outputs.items()]
    return object_text(members, 1)


def _value_text(name: str, array: Array, level: int) -> bytes:
    """Return the whole tensor's text, one element a line, within `level` containers."""
    return _element_texts(name, array[np.newaxis], level, one_line=False)[0]


def _element_texts(name: str, array: Array, level: int | None, *, one_line: bool) -> list[bytes]:
    """Return one text for each element of the first dimension, which stand within `level` containers."""
    if array.ndim > 1 and len(array) and array[0].size > BLOCK:
        return [_large_element(name, each, level, one_line=one_line) for each in array]
    if has_bytes(name, array):
        depth = None if level is None else level + array.ndim - 1
        texts = [_base64_text(element, depth) for element in array.reshape(-1).tolist()]
    else:
        texts = scalar_texts(array)
    return nested_text(texts, array.shape, None if one_line else level)


def _large_element(name: str, array: Array, level: int | None, *, one_line: bool) -> bytes:
    """Return the text of a list, made block by block: one text for each number would take too much."""
    within = None if level is None else level + 1
    separator = b", " if one_line or within is None else b",\n" + within * INDENT
    step = _rows_in_block(len(array), array.size)
    blocks = (array[start : start + step] for start in range(0, len(array), step))
    text = separator.join(
        separator.join(_element_texts(name, block, within, one_line=one_line)) for block in blocks
    )
    return list_text([text], None if one_line else level)


def _rows_in_block(rows: int, size: int) -> int:
    return max(1, BLOCK * rows // max(1, size))


def _base64_text(element: bytes, level: int | None) -> bytes:
    return object_text([(b'"b64"', quoted(base64.b64encode(element)))], level)
