"""Whether a text is JSON by TensorFlow Serving's rules, found out without making its values.

A hostile body of 100 MiB, broken at its very end, would cost the exact reader minutes and many gigabytes.
Here one expression skips hundreds of tokens at a time that are right by themselves, their brackets and commas
alone are then compared, and an open container costs a byte. Where something is not plainly right the exact
reader goes on token by token, so that reasons and offsets are its own. Nesting has no limit. Rules:
TensorFlow Serving's contract, section 2.1.
"""

from __future__ import annotations

import re

from pierhead.formats.json_reader import JsonReader, parse_error

__all__ = ["JsonOutline"]

SPACE = r"[ \t\n\r]*+"
HEX2 = r"[0-9a-fA-F]{2}"
PAIR = rf"[dD][89abAB]{HEX2}\\u[dD][c-fC-F]{HEX2}"
ESCAPE = rf"\\(?:[\"\\/bfnrt]|u(?:[0-9a-ceA-CEfF]{HEX2}[0-9a-fA-F]|[dD][0-7]{HEX2}|{PAIR}))"
TEXT = rf'(?:[^"\\\x00-\x1f]++|{ESCAPE})'
STRING = rf'"{TEXT}{{0,999}}+"'
# Small enough for a double whatever its digits.
NUMBER = r"-?(?:0|[1-9][0-9]{0,99}+)(?:\.[0-9]{1,99}+)?+(?:[eE][+-]?[0-9]{1,2})?+(?![0-9.eE])"
NON_FINITE = r"-?(?:NaN|Inf(?:inity)?+(?!i))"
EMPTY = rf"\[{SPACE}\]|\{{{SPACE}\}}"
LEAF = rf"(?>{NUMBER}|{STRING}|null|true|false|{EMPTY}|{NON_FINITE})"
NAME = rf"{SPACE}{STRING}{SPACE}:"
OPENING = rf"\[(?!{SPACE}\])|\{{{NAME}"
# Goes from where a value is due to where one is due again, whether or not names and closings are in place.
STEP = rf"{SPACE}(?>{OPENING}|{LEAF}(?:{SPACE}[\]}}])*+{SPACE},(?:{NAME})?+)"
STEPS = re.compile(rf"(?:{STEP}){{1,500}}+".encode())
# Nothing but brackets, which may be millions.
OPENINGS = re.compile(rb"\[+(?=\[)")
CLOSING_RUN = re.compile(rb"\]{8,999}+")
TEXTS = re.compile(rf"{TEXT}{{1,999}}+".encode())
STRINGS = re.compile(STRING.encode())
NO_MARKS = bytes(set(range(256)) - set(b"[]{},:"))
# One mark for a comma and the name after it.
NAMED = ((b",:", b";"), (b"{:", b"{"))
WHOLE = re.compile(rb"\[,*+\]|\{;*+\}")
REPEATED = re.compile(rb",{2,}+|;{2,}+")
CLOSINGS = {ord("["): ord("]"), ord("{"): ord("}")}
COMMAS = {ord(","): ord("]"), ord(";"): ord("}")}


class JsonOutline(JsonReader):
    """Checks values from `start` on; raises what `read` would raise."""

    def __init__(self, body: bytes, start: int = 0) -> None:
        super().__init__(body, quick_from=None)
        self._position = max(start, self._position)
        # What closes the open containers, the innermost last.
        self._open = bytearray()
        # Up to here steps are not plainly right.
        self._doubtful = 0

    def check(self) -> None:
        """Go past the next value; raise ServingError where it is not JSON."""
        if self.is_at_end():
            raise parse_error("The document is empty", self._position)
        while True:
            if self._skip_steps():
                continue
            value, is_open = self._start_value()
            if is_open:
                self._open += b"]" if isinstance(value, list) else b"}"
                if isinstance(value, dict):
                    self._key()
            elif not self._next_follows():
                return

    def _skip_steps(self) -> bool:
        if not self._open or self._position < self._doubtful:
            return False
        openings = OPENINGS.match(self._body, self._position)
        if openings:
            self._open += b"]" * len(openings[0])
            self._position = openings.end()
        found = STEPS.match(self._body, self._position)
        if not found:
            return openings is not None
        if self._takes(_marks(found[0])):
            self._position = found.end()
            return True
        self._doubtful = found.end()
        return False

    def _takes(self, marks: bytes) -> bool:
        """Open and close containers; change nothing and return False where the marks are out of place."""
        reach = marks.count(b"]") + marks.count(b"}") + 1
        tail = self._open[-reach:]
        for mark in marks:
            if mark in CLOSINGS:
                tail.append(CLOSINGS[mark])
            elif not tail or tail[-1] != COMMAS.get(mark, mark):
                return False
            elif mark not in COMMAS:
                tail.pop()
        self._open[-reach:] = tail
        return bool(self._open)

    def _next_follows(self) -> bool:
        """Go past closings and a comma; return False after the outermost value."""
        while self._open:
            self._skip_closings()
            if self._open[-1:] == b"]":
                if self._array_goes_on():
                    return True
            elif self._object_goes_on():
                self._key()
                return True
            self._open.pop()
        return False

    def _string(self) -> str:
        while found := TEXTS.match(self._body, self._position + 1):
            self._position = found.end() - 1
        return super()._string()

    def _skip_closings(self) -> None:
        """Go past brackets that close arrays, but for the last few."""
        while found := CLOSING_RUN.match(self._body, self._position):
            count = len(found[0])
            if len(self._open) <= count or self._open[-count:].count(b"]") < count:
                return
            del self._open[-count:]
            self._position = found.end()


def _marks(steps: bytes) -> bytes:
    """Return the brackets and commas that matter, without those of containers that are whole."""
    marks = STRINGS.sub(b"", steps).translate(None, NO_MARKS)
    for wordy, brief in NAMED:
        marks = marks.replace(wordy, brief)
    return REPEATED.sub(lambda found: found[0][:1], WHOLE.sub(b"", WHOLE.sub(b"", marks)))
