"""JSON read exactly as TensorFlow Serving's parser reads it, token by token, with its reasons for refusing.

Slower than Python's own scanner, which reads ordinary documents (`json_document`); this one reads the rest.
Long arrays of nothing but numbers become a `NumericArray` at once, at the speed of numpy. Nesting has no
limit: open containers are kept on a list. Rules: TensorFlow Serving's contract, section 2.1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from pierhead.errors import Code, ServingError
from pierhead.formats.numeric_array import Json, NumericArray, read_numeric_array

__all__ = ["JsonReader", "integer", "number", "parse_error"]

QUICK_FROM = 96
# Values read one by one, and the fewest bytes that as many may take before the rest is looked at first.
MANY_STEPS = 500
FEW_BYTES = 1 << 14
WHITE_SPACE = re.compile(rb"[ \t\n\r]*")
NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]*)?")
# None of these is within an array of numbers.
BARRIERS = (b'"', b"}", b"{")
PLAIN_TEXT = re.compile(rb'[^"\\\x00-\x1f]*')
NON_FINITE = re.compile(rb"(-?)(NaN|Inf(?:inity)?)")
HEX4 = re.compile(rb"[0-9a-fA-F]{4}")
# Lists within one another, more than an array of numbers may have.
OPENINGS = re.compile(rb"\[{64,}(?=\[)")
CLOSINGS = re.compile(rb"\]{64,}")
# Integers that may not fit 64 bits, numbers that may be too big for a double, and what is not JSON.
ODD_NUMBER = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{3}|[NI]")
SCAN_NUMBERS: Callable[[str, int], tuple[Json, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
WORDS: dict[bytes, Json] = {b"null": None, b"true": True, b"false": False}
ESCAPES = {
    b'"': b'"', b"\\": b"\\", b"/": b"/", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"
}  # fmt: skip
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def parse_error(reason: str, offset: int) -> ServingError:
    """Return the refusal of a text that is not JSON from `offset` on."""
    return ServingError(Code.INVALID_ARGUMENT, f"JSON Parse error: {reason}. at offset: {offset}")


def number(token: bytes) -> int | float | None:
    """Return the value of a text that is one number token, None where it is not."""
    found = NUMBER.fullmatch(token)
    if not found:
        return float(token) if NON_FINITE.fullmatch(token) else None
    fraction, exponent = found.groups()
    if fraction == b"." or not token[-1:].isdigit():
        return None
    value = float(token) if fraction or exponent else integer(token)
    return None if math.isinf(value) else value


class JsonReader:
    """Reads values one after another from a text; raises ServingError where it is not JSON.

    Number arrays of at least `quick_from` bytes become NumericArrays, none where it is None. The body and
    the start of a value of many small parts are given to `shortcut`, which returns the value and its end,
    None where it cannot make it, and raises where it is not JSON.
    """

    def __init__(
        self,
        body: bytes,
        *,
        quick_from: int | None = QUICK_FROM,
        shortcut: Callable[[bytes, int], tuple[Json, int] | None] | None = None,
    ) -> None:
        self._body = body
        self._shortcut = shortcut
        self._quick_from = len(body) + 1 if quick_from is None else quick_from
        # Up to here a run of numbers was tried as a NumericArray and was none; trying again from each array
        # within it would take quadratic time.
        self._tried = 0
        self._barriers = dict.fromkeys(BARRIERS, -1)
        self._position = len(BYTE_ORDER_MARK) if body.startswith(BYTE_ORDER_MARK) else 0

    def is_at_end(self) -> bool:
        """Skip white space and tell whether nothing is left."""
        return not self._peek()

    def read(self) -> Json:
        """Return the next value."""
        if self.is_at_end():
            raise parse_error("The document is empty", self._position)
        containers: list[list[Json] | dict[str, Json]] = []
        keys: list[str] = []
        start = self._since = self._position
        self._steps = 0
        while True:
            if self._is_slow() and (found := self._taken_shortcut(start)):
                value, self._position = found
                return value
            self._open_lists(containers)
            value, is_open = self._start_value()
            if is_open:
                containers.append(value)  # type: ignore[arg-type]
                if isinstance(value, dict):
                    keys.append(self._key())
                continue
            while containers and not self._attach(value, containers[-1], keys):
                value = self._closed_lists(containers.pop(), containers)
            if not containers:
                return value

    def _is_slow(self) -> bool:
        """Count a step, and tell whether the last ones got through few bytes."""
        self._steps += 1
        if self._shortcut is None or self._steps % MANY_STEPS:
            return False
        since, self._since = self._since, self._position
        return self._position - since < FEW_BYTES

    def _taken_shortcut(self, start: int) -> tuple[Json, int] | None:
        shortcut, self._shortcut = self._shortcut, None
        return shortcut(self._body, start) if shortcut else None

    def _open_lists(self, containers: list[list[Json] | dict[str, Json]]) -> None:
        # Not before the shortcut has had its say: millions of lists take gigabytes.
        found = None if self._shortcut else OPENINGS.match(self._body, self._position)
        if found:
            containers.extend([] for _ in range(len(found[0])))
            self._position = found.end()

    def _closed_lists(self, value: Json, containers: list[list[Json] | dict[str, Json]]) -> Json:
        """Put the value into its list, that into its own and so on, as far as lists are closed in a row."""
        found = CLOSINGS.match(self._body, self._position)
        for _ in range(len(found[0]) if found else 0):
            if not containers or not isinstance(containers[-1], list):
                break
            containers[-1].append(value)
            value = containers.pop()
            self._position += 1
        return value

    def _attach(self, value: Json, container: list[Json] | dict[str, Json], keys: list[str]) -> bool:
        """Put the value into its container, and tell whether another one follows."""
        if isinstance(container, list):
            container.append(value)
            return self._array_goes_on()
        container.setdefault(keys.pop(), value)
        if not self._object_goes_on():
            return False
        keys.append(self._key())
        return True

    def _start_value(self) -> tuple[Json, bool]:
        """Return a whole value and False, or a list or dict that is yet to be filled and True."""
        mark = self._peek()
        if mark == b"[":
            quick = self._numeric_array()
            return (quick, False) if quick is not None else self._open_container([], b"]")
        if mark == b"{":
            return self._open_container({}, b"}")
        if mark == b'"':
            return self._string(), False
        if mark in (b"n", b"t", b"f"):
            return self._word(), False
        return self._number(), False

    def _open_container(self, container: Json, closing: bytes) -> tuple[Json, bool]:
        self._position += 1
        if self._peek() != closing:
            return container, True
        self._position += 1
        return container, False

    def _peek(self) -> bytes:
        self._position = WHITE_SPACE.match(self._body, self._position).end()  # type: ignore[union-attr]
        return self._body[self._position : self._position + 1]

    def _array_goes_on(self) -> bool:
        return self._comma_follows(b"]", "Missing a comma or ']' after an array element")

    def _object_goes_on(self) -> bool:
        return self._comma_follows(b"}", "Missing a comma or '}' after an object member")

    def _comma_follows(self, closing: bytes, reason: str) -> bool:
        mark = self._peek()
        if mark not in (b",", closing):
            raise parse_error(reason, self._position)
        self._position += 1
        return mark == b","

    def _key(self) -> str:
        if self._peek() != b'"':
            raise parse_error("Missing a name for object member", self._position)
        key = self._string()
        if self._peek() != b":":
            raise parse_error("Missing a colon after a name of object member", self._position)
        self._position += 1
        return key

    def _numeric_array(self) -> NumericArray | list[Json] | None:
        start = self._position
        if start < self._tried or len(self._body) - start < self._quick_from:
            return None
        self._tried = self._next_barrier(start)
        if self._tried - start < self._quick_from:
            return None
        text = self._body[start : self._tried].rstrip(b", \t\n\r")
        array = read_numeric_array(text)
        if array is None:
            return self._scanned_array(text)
        self._position = start + len(text)
        return array

    def _scanned_array(self, text: bytes) -> list[Json] | None:
        """Return the ragged array of ordinary numbers that a text starts with, None where it is none."""
        if ODD_NUMBER.search(text):
            return None
        try:
            value, end = SCAN_NUMBERS(text.decode("ascii"), 0)
        except (ValueError, RecursionError, StopIteration):
            return None
        self._position += end
        return value if isinstance(value, list) else None

    def _next_barrier(self, start: int) -> int:
        """Return where an array that starts here ends at the latest, if it is one of numbers."""
        for mark, position in self._barriers.items():
            if position < start:
                found = self._body.find(mark, start)
                self._barriers[mark] = found if found >= 0 else len(self._body)
        return min(self._barriers.values())

    def _word(self) -> Json:
        rest = self._body[self._position : self._position + 5]
        for word, value in WORDS.items():
            if rest.startswith(word):
                self._position += len(word)
                return value
        raise parse_error("Invalid value", self._position + max(_common_length(rest, word) for word in WORDS))

    def _number(self) -> int | float:
        found = NUMBER.match(self._body, self._position)
        if not found:
            return self._non_finite()
        fraction, exponent = found.groups()
        if fraction == b".":
            raise parse_error("Miss fraction part in number", found.end(1))
        if exponent and not exponent[-1:].isdigit():
            raise parse_error("Miss exponent in number", found.end(2))
        value = float(found[0]) if fraction or exponent else integer(found[0])
        if math.isinf(value):
            raise parse_error("Number too big to be stored in double", self._position)
        self._position = found.end()
        return value

    def _non_finite(self) -> float:
        found = NON_FINITE.match(self._body, self._position)
        if not found:
            rest = self._body[self._position : self._position + 9]
            minus = rest.startswith(b"-")
            wrong = max(_common_length(rest[minus:], word) for word in (b"NaN", b"Inf"))
            raise parse_error("Invalid value", self._position + minus + wrong)
        if found[2] == b"Inf" and self._body[found.end() : found.end() + 1] == b"i":
            rest = self._body[found.end() : found.end() + 5]
            raise parse_error("Invalid value", found.end() + _common_length(rest, b"inity"))
        self._position = found.end()
        return float(found[0].decode())

    def _string(self) -> str:
        self._position += 1
        pieces: list[bytes] = []
        while True:
            plain = PLAIN_TEXT.match(self._body, self._position)
            pieces.append(plain[0])  # type: ignore[index]
            self._position = plain.end()  # type: ignore[union-attr]
            mark = self._body[self._position : self._position + 1]
            if mark == b'"':
                self._position += 1
                return b"".join(pieces).decode(errors="surrogateescape")
            if mark in (b"", b"\0"):
                raise parse_error("Missing a closing quotation mark in string", self._position)
            if mark != b"\\":
                raise parse_error("Invalid escape character in string", self._position)
            pieces.append(self._escape())

    def _escape(self) -> bytes:
        mark = self._body[self._position + 1 : self._position + 2]
        if mark == b"u":
            return self._code_point().encode()
        if mark not in ESCAPES:
            raise parse_error("Invalid escape character in string", self._position)
        self._position += 2
        return ESCAPES[mark]

    def _code_point(self) -> str:
        """Return the character of one `\\u` escape, or of the two of a surrogate pair."""
        start = self._position
        first = self._hex4(start + 2, start)
        self._position += 6
        if not 0xD800 <= first <= 0xDFFF:
            return chr(first)
        if first > 0xDBFF or self._body[self._position : self._position + 2] != b"\\u":
            raise parse_error("The surrogate pair in string is invalid", start)
        second = self._hex4(self._position + 2, start)
        self._position += 6
        if not 0xDC00 <= second <= 0xDFFF:
            raise parse_error("The surrogate pair in string is invalid", start)
        return chr(0x10000 + ((first - 0xD800) << 10) + second - 0xDC00)

    def _hex4(self, position: int, escape: int) -> int:
        digits = HEX4.match(self._body, position)
        if not digits:
            raise parse_error("Incorrect hex digit after \\u escape in string", escape)
        return int(digits[0], 16)


def integer(token: bytes | str) -> int | float:
    """Return the integer; one beyond 64 bits becomes a double."""
    value = int(token) if len(token) <= 20 else None
    return value if value is not None and -(2**63) <= value < 2**64 else float(token)


def _common_length(text: bytes, word: bytes) -> int:
    return next(
        (at for at, pair in enumerate(zip(text, word, strict=False)) if pair[0] != pair[1]),
        min(len(text), len(word)),
    )
