"""CSV (RFC 4180), an instance each row: read from a body, and written.

A row of one column is a scalar, a row of several a list. A cell that is a number in JSON's spelling (also
NaN, Inf and Infinity), with blanks around it or quotes, is that number; every other cell is text as it
stands. Blank lines do not count.
"""

from __future__ import annotations

import base64
import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping

from pierhead.errors import Code, ServingError
from pierhead.formats.json_reader import BYTE_ORDER_MARK, number
from pierhead.formats.json_writing import has_bytes, scalar_texts
from pierhead.formats.numeric_array import Json, NumericArray, read_numeric_array
from pierhead.formats.predict_json import refuse_unequal_batches
from pierhead.formats.tensors import Array

__all__ = ["cell_text", "read_rows", "render_rows"]

NEEDS_QUOTES = re.compile(rb'[",\r\n]')


def read_rows(body: bytes) -> list[Json] | NumericArray:
    """Return the rows.

    Raises ServingError (INVALID_ARGUMENT) for a body without rows, or with a quote left open.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    rows = _numeric_rows(body) or list(_exact_rows(body))
    if not rows:
        raise ServingError(Code.INVALID_ARGUMENT, "CSV Parse error: The document is empty")
    return rows


def render_rows(outputs: Mapping[str, Array]) -> bytes:
    """Return one line for each instance: its elements in row order.

    Several outputs stand in the order of their names. Outputs whose name ends in `_bytes` are in base64.
    Raises ServingError where the outputs have no common 0th dimension.
    """
    refuse_unequal_batches(outputs)
    columns = [_instance_cells(name, outputs[name]) for name in sorted(outputs)]
    rows = (b",".join(cells) for cells in zip(*columns, strict=True))
    # A line of one empty text would otherwise be a blank line.
    return b"".join((row or b'""') + b"\n" for row in rows)


def _instance_cells(name: str, array: Array) -> list[bytes]:
    """Return the cells of each instance, joined."""
    cells = _text_cells(name, array) if array.dtype == object else scalar_texts(array)
    size = array.size // len(array) if len(array) else 0
    if size == 1:
        return cells
    return [b",".join(cells[at * size : (at + 1) * size]) for at in range(len(array))]


def _text_cells(name: str, array: Array) -> list[bytes]:
    texts: list[bytes] = array.reshape(-1).tolist()
    return (
        [base64.b64encode(text) for text in texts]
        if has_bytes(name, array)
        else [cell_text(text) for text in texts]
    )


def cell_text(text: bytes) -> bytes:
    """Return a cell that holds this text, within quotes where it needs them."""
    return b'"' + text.replace(b'"', b'""') + b'"' if NEEDS_QUOTES.search(text) else text


def _numeric_rows(body: bytes) -> NumericArray | None:
    """Return the rows as one array; None where they are not just numbers, or blank lines stand between."""
    text = body.rstrip(b"\r\n").replace(b"\r\n", b"\n")
    # To JSON a lone carriage return would be white space, and a bracket a list.
    if not text.strip() or b"[" in text or b"\r" in text:
        return None
    if b"," in text:
        return read_numeric_array(b"[[" + text.replace(b"\n", b"],[") + b"]]")
    return read_numeric_array(b"[" + text.replace(b"\n", b",") + b"]")


def _exact_rows(body: bytes) -> Iterator[Json]:
    # The limit of 128 KiB for a cell is the whole process's; a body's size is limited elsewhere.
    csv.field_size_limit(sys.maxsize)
    # Bytes that are not UTF-8 come through as they are, as in JSON.
    text = io.StringIO(body.decode(errors="surrogateescape"), newline="")
    rows = csv.reader(text, strict=True)
    start = 1
    try:
        for row in rows:
            start = rows.line_num + 1
            if len(row) > 1:
                yield [_cell(cell) for cell in row]
            elif row and (row[0].strip(" \t") or not row[0]):
                yield _cell(row[0])
    except csv.Error as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"CSV Parse error: {problem} at line: {start}") from problem


def _cell(text: str) -> Json:
    value = number(text.strip(" \t").encode(errors="surrogateescape"))
    return text if value is None else value
