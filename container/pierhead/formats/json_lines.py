"""JSON values one after another, an instance each: read from a body, and written a line each.

Between values stands any white space; lines are only the usual way. Lines of nothing but numbers are joined
into one array and read at the speed of numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pierhead.formats.json_document import Json, all_values
from pierhead.formats.numeric_array import NumericArray, read_numeric_array, structure
from pierhead.formats.predict_json import instance_texts
from pierhead.formats.tensors import Array

__all__ = ["joined_lines", "read_values", "render_lines"]


def read_values(body: bytes) -> list[Json] | NumericArray:
    """Return the body's values; raise ServingError where one is not JSON, or there is none."""
    lines = [line for line in body.splitlines() if line.strip()]
    return (joined_lines(lines) if len(lines) > 1 else None) or all_values(body)


def joined_lines(lines: Sequence[bytes]) -> NumericArray | None:
    """Return the array whose elements are the lines; None where they are not numbers of one shape."""
    forms = {structure(line) for line in lines}
    if len(forms) != 1:
        return None
    # Brackets that only balance over several lines, such as "[1" and "2]", are no value in any of them.
    (form,) = forms
    numbers = (
        read_numeric_array(b"[" + b",".join(lines) + b"]") if form.count(b"[") == form.count(b"]") else None
    )
    return numbers if numbers is not None and len(numbers.array) == len(lines) else None


def render_lines(outputs: Mapping[str, Array]) -> bytes:
    """Return one line of JSON for each instance: the value of the only output, or an object of all."""
    return b"".join(text + b"\n" for text in instance_texts(outputs, None))
