"""JSON arrays of nothing but numbers, from text to numpy without a Python object for each number.

simdjson turns the text into one flat buffer. The shape comes from the text's brackets and commas: what the
first innermost list and each list around it span says how the whole must look, and one comparison says
whether it does.
"""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import simdjson

from pierhead.formats.tensors import Array

__all__ = ["Json", "NumericArray", "read_numeric_array", "structure"]

NUMBER_CHARACTERS = b"0123456789.eE+- \t\n\r"
# What numpy allows.
LARGEST_RANK = 64


@dataclass(frozen=True, eq=False)
class NumericArray:
    """A dense array, of int64 where every token is an integer, else of float64; `text` is its JSON."""

    text: bytes
    array: Array


class _Kept(threading.local):
    """A parser of each thread: its buffers, once in memory, serve one request after another."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


KEPT = _Kept()
# A parser never gives back what its largest text took, about ten times its size.
LARGEST_FOR_KEPT = 1 << 23
BLOCK = 1 << 20
BRACKETS_TO_SPACES = bytes.maketrans(b"[]", b"  ")
MISPLACED_BRACKET = re.compile(rb"\[[ \t\n\r]*[\],]|\][ \t\n\r]*[-0-9]")
Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | NumericArray | None


def read_numeric_array(text: bytes) -> NumericArray | None:
    """Return the array that a text is; None where it is none, is ragged, or has integers beyond int64."""
    decimal = b"." in text or b"e" in text or b"E" in text
    flat = _numbers_by_blocks(text, decimal=decimal) if len(text) > LARGEST_FOR_KEPT else None
    if flat is None:
        flat = _numbers(text, decimal=decimal)
    shape = _shape(structure(text), flat.size) if flat is not None else None
    return NumericArray(text, flat.reshape(shape)) if flat is not None and shape is not None else None


def _numbers(text: bytes, *, decimal: bool) -> Array | None:
    """Return the numbers of an array and of the arrays in it; None where there is anything else."""
    parser = KEPT.parser if len(text) <= LARGEST_FOR_KEPT else simdjson.Parser()
    try:
        numbers = parser.parse(text)
        if not isinstance(numbers, simdjson.Array):
            return None
        buffer = numbers.as_buffer(of_type="d" if decimal else "i")
    except (ValueError, TypeError, RuntimeError):
        return None
    return np.frombuffer(buffer, np.float64 if decimal else np.int64)


def _numbers_by_blocks(text: bytes, *, decimal: bool) -> Array | None:
    """Return the numbers without the memory of a parser for all of the text.

    Between two commas there must be one number, which brackets only open before and only close after; that
    they are otherwise as they should be is seen by the shape. None where it is not so.
    """
    if MISPLACED_BRACKET.search(text):
        return None
    flat = np.empty(text.count(b",") + 1, np.float64 if decimal else np.int64)
    start = filled = 0
    while start < len(text):
        end = text.find(b",", start + BLOCK)
        end = len(text) if end < 0 else end
        numbers = _numbers(b"[" + text[start:end].translate(BRACKETS_TO_SPACES) + b"]", decimal=decimal)
        if numbers is None or filled + numbers.size > flat.size:
            return None
        flat[filled : filled + numbers.size] = numbers
        filled += numbers.size
        start = end + 1
    return flat if filled == flat.size else None


def structure(text: bytes) -> bytes:
    """Return what is left without numbers and white space: brackets and commas of an array."""
    return text.translate(None, NUMBER_CHARACTERS)


def _shape(form: bytes, size: int) -> tuple[int, ...] | None:
    """Return the shape of `size` numbers from their brackets and commas; None where they are ragged."""
    rank = len(form) - len(form.lstrip(b"["))
    if rank > LARGEST_RANK:
        return None
    dims: list[int] = []
    expected = b""
    for closings in range(1, rank + 1):
        end = form.find(b"]" * closings) + closings
        span = end - (rank - closings)
        dims.insert(0, (span - 1) // (len(expected) + 1) if size or closings > 1 else 0)
        # Not by `join`, which takes a hundred bytes for each part.
        expected = b"[" + ((expected + b",") * dims[0])[:-1] + b"]"
    return tuple(dims) if expected == form and math.prod(dims) == size else None
