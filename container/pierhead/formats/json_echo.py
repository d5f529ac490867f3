"""JSON values as TensorFlow Serving's messages repeat them: objects indented, lists on one line, cut off.

Rules: TensorFlow Serving's contract, section 1.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from pierhead.formats.json_document import Json, exact
from pierhead.formats.json_writing import encoded, quoted
from pierhead.formats.numeric_array import NumericArray

__all__ = ["echo", "kind"]

LONGEST_ECHO = 256
INDENT = 4
LARGEST_PLAIN_EXPONENT = 21
SMALLEST_PLAIN_EXPONENT = -6


def echo(value: Json) -> str:
    """Return the value's text; a long one ends after the piece that passes 256 bytes."""
    text = b""
    for piece in _pieces(value, 0):
        text += piece
        if len(text) > LONGEST_ECHO:
            break
    return text.decode(errors="replace")


def kind(value: Json) -> str:
    """Return the name that messages give to the value's JSON type."""
    if isinstance(value, bool):
        return "True" if value else "False"
    names = {
        str: "String",
        list: "Array",
        NumericArray: "Array",
        dict: "Object",
        int: "Number",
        float: "Number",
    }
    return names.get(type(value), "Null")


def _pieces(value: Json, level: int) -> Iterator[bytes]:
    value = exact(value)
    if isinstance(value, list):
        yield b"["
        for at, item in enumerate(value):
            yield b", " if at else b""
            yield from _pieces(item, level + 1)
        yield b"]"
    elif isinstance(value, dict) and value:
        yield from _object_pieces(value, level + 1)
    else:
        yield _scalar(value)


def _object_pieces(value: dict[str, Json], level: int) -> Iterator[bytes]:
    line = b"\n" + b" " * (INDENT * level)
    for at, (key, item) in enumerate(value.items()):
        yield (b"," if at else b"{") + line + quoted(encoded(key)) + b": "
        yield from _pieces(item, level)
    yield line[:-INDENT] + b"}"


def _scalar(value: Json) -> bytes:
    if isinstance(value, bool) or value is None:
        return {True: b"true", False: b"false", None: b"null"}[value]
    if isinstance(value, str):
        return quoted(encoded(value))
    if isinstance(value, float):
        return _decimal(value).encode()
    return str(value or {}).encode()


def _decimal(value: float) -> str:
    """Return the shortest digits: plain from 1e-6 to 1e21, and always with a point or an exponent."""
    if not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    point = len(digits) + int(exponent)
    if SMALLEST_PLAIN_EXPONENT < point <= LARGEST_PLAIN_EXPONENT:
        plain = f"{Decimal(repr(value)):f}"
        return plain if "." in plain else f"{plain}.0"
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' * sign}{first}{'.' * bool(rest)}{rest}e{point - 1}"
