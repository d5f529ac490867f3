"""JSON documents as plain values, from TensorFlow Serving's dialect of JSON.

An int is an integer token, a float a decimal one; strings hold bytes that are not UTF-8 as surrogate
escapes; of two equal keys the first wins; a long array of numbers is a `NumericArray`. Ordinary documents
are read by Python's scanner. Those with arrays for numpy, and those where the scanner would differ from
TensorFlow Serving or fails, are read by `JsonReader`. Rules: TensorFlow Serving's contract, section 2.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pierhead.formats.json_outline import JsonOutline
from pierhead.formats.json_reader import BYTE_ORDER_MARK, WHITE_SPACE, JsonReader, integer
from pierhead.formats.numeric_array import Json, NumericArray

__all__ = ["Json", "all_values", "exact", "first_object"]

LONG = 96
LONG_RUN = re.compile(rb"\[[\[\]0-9.eE+\-, \t\n\r]{%d}" % LONG)
# Surrogates, which may be alone; integers that may not fit 64 bits; numbers that may be too big for a double.
# One by one they are looked for in two thirds of the time that one expression takes.
ODDITIES = tuple(map(re.compile, (rb"\\u[dD][89a-fA-F]", rb"[0-9]{19}", rb"[0-9][eE]\+?[0-9]{3}")))
TEXT_SPACE = re.compile(WHITE_SPACE.pattern.decode())


def first_object(body: bytes) -> Json:
    """Return the body's first value, which is meant to be an object; what follows it is not looked at.

    Raises ServingError (INVALID_ARGUMENT) where it is not JSON.
    """
    values = _scanned(body, most=1)
    # A scalar's end is where the scanner and TensorFlow Serving may disagree: `1.` is 1 or no JSON.
    return values[0] if values and isinstance(values[0], dict) else _exact_reader(body).read()


def all_values(body: bytes) -> list[Json]:
    """Return all values of the body, between which white space may stand.

    Raises ServingError (INVALID_ARGUMENT) where one is not JSON, or there is none.
    """
    values = _scanned(body)
    if values:
        return values
    reader = _exact_reader(body)
    values = [reader.read()]
    while not reader.is_at_end():
        values.append(reader.read())
    return values


def exact(value: Json) -> Json:
    """Return the value, a NumericArray as the lists and number tokens that it was read from."""
    # What became an array is right, and the scanner many times faster than the exact reader.
    return SCAN_CHECKED(value.text.decode(), 0)[0] if isinstance(value, NumericArray) else value


def _exact_reader(body: bytes) -> JsonReader:
    return JsonReader(body, shortcut=_checked_value)


def _checked_value(body: bytes, start: int) -> tuple[Json, int] | None:
    """Return the value that starts here and its end; None where Python's scanner cannot make it.

    Raises ServingError where it is not JSON. What is right can be left to the scanner, however odd it is.
    """
    JsonOutline(body, start).check()
    text = body[start:].decode(errors="surrogateescape")
    try:
        value, end = SCAN_CHECKED(text, 0)
    except (ValueError, RecursionError, StopIteration):
        return None
    return value, start + len(text[:end].encode(errors="surrogateescape"))


def _scanned(body: bytes, *, most: int | None = None) -> list[Json]:
    """Return the values that Python's scanner reads; none where it cannot be relied on."""
    values: list[Json] = []
    if (len(body) > LONG and LONG_RUN.search(body)) or any(odd.search(body) for odd in ODDITIES):
        return values
    try:
        text = body.removeprefix(BYTE_ORDER_MARK).decode()
        position = _after_space(text, 0)
        while position < len(text) and len(values) != most:
            value, position = SCAN(text, position)
            values.append(value)
            position = _after_space(text, position)
    except (ValueError, RecursionError, StopIteration):
        return []
    return values


def _after_space(text: str, position: int) -> int:
    found = TEXT_SPACE.match(text, position)
    return found.end() if found else position


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        members.update(reversed(pairs))
    return members


Scanner = Callable[[str, int], tuple[Any, int]]
# What `raw_decode` wraps; it raises StopIteration where no value starts.
SCAN: Scanner = json.JSONDecoder(object_pairs_hook=_first_wins).scan_once  # type: ignore[attr-defined]
SCAN_CHECKED: Scanner = json.JSONDecoder(object_pairs_hook=_first_wins, parse_int=integer).scan_once  # type: ignore[attr-defined]
