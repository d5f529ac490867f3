"""float32 arrays as text, many values at a time, by the rule of TensorFlow Serving's contract, section 6.

The digits come from one multiplication with a power of ten in float64, which is exact enough for nine of
them: of the six-digit text it is certain whether it reads back, and of the nine-digit one the last digit
is, except next to a tie. Where it is not, and for values that the table of powers does not reach, the
caller's own function writes the text. A text has sixteen characters at most, so it is put together in two
integers of 64 bits, the first character in the lowest byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pierhead.formats.tensors import Array

__all__ = ["float32_texts"]

# What fits a processor's cache: fresh memory for a whole image would cost more than the arithmetic.
BLOCK = 1 << 13
# Powers of ten up to 22 are exact in float64, so one multiplication or division rounds once.
POWERS = 10.0 ** np.arange(23)
SMALLEST_EXPONENT, LARGEST_EXPONENT = -14, 22
FEWEST, MOST = 6, 9
SMALLEST_FIXED = -4
# The product of a power and a value is below 1e9, and so off by 6e-8 at most.
TIE = 1e-6
MINUS, LETTER, ZERO = b"-e0"
EIGHT_ZEROS = int.from_bytes(b"0" * 8, "little")


def _words(texts: list[bytes]) -> Array:
    """Return texts of up to sixteen characters as two rows of integers."""
    halves = [[int.from_bytes(half, "little") for half in (each[:8], each[8:])] for each in texts]
    return np.array(halves, np.uint64).T


# The first so many characters; a point after so many, and what a number below 1 starts with.
FIRST = _words([b"\xff" * count for count in range(17)])
POINTS = _words([b"\0" * count + b"." for count in range(MOST)] + [b"\0" * MOST + b".0"] + [b""] * 7)
NOWHERE = 16
LEADING = _words([b"", b"", *[b"0." + b"0" * count for count in range(4)]])


@dataclass(frozen=True)
class Characters:
    """Texts of up to sixteen characters, each in two integers."""

    low: Array
    high: Array

    def moved(self, places: Array) -> Characters:
        """Return the texts with 0 to 8 empty places before each."""
        bits = (places * 8).astype(np.uint64)
        return Characters(self.low << bits, self.high << bits | self.low >> (np.uint64(64) - bits))

    def joined(self, low: Array, high: Array | int = 0) -> Characters:
        """Return the texts with other characters in their empty places."""
        return Characters(self.low | low, self.high | high)

    def first(self, count: Array) -> Characters:
        """Return the first so many characters of each."""
        return Characters(self.low & FIRST[0].take(count), self.high & FIRST[1].take(count))

    def after(self, count: Array) -> Characters:
        """Return the texts with the first so many characters empty."""
        return Characters(self.low & ~FIRST[0].take(count), self.high & ~FIRST[1].take(count))

    def texts(self) -> list[bytes]:
        """Return the texts, without empty places at their ends."""
        both = np.stack([self.low, self.high], axis=1).astype("<u8", copy=False)
        texts: list[bytes] = both.view("S16").reshape(-1).tolist()
        return texts


@dataclass(frozen=True)
class Decimals:
    """Values without sign: nine digits each, and the exponent of the first.

    `used` counts the digits up to the last that is not zero, `most` those that the rule may print.
    """

    digits: Characters
    exponents: Array
    used: Array
    most: Array


def float32_texts(flat: Array, write: Callable[[float], bytes]) -> list[bytes]:
    """Return the text of each value; `write` makes those that are not certain."""
    texts: list[bytes] = []
    for start in range(0, flat.size, BLOCK):
        texts += _block_texts(flat[start : start + BLOCK], write)
    return texts


def _block_texts(flat: Array, write: Callable[[float], bytes]) -> list[bytes]:
    with np.errstate(invalid="ignore"):
        # A signalling NaN becomes a quiet one.
        values = flat.astype(np.float64)
    is_certain = np.isfinite(values)
    decimals = _decimals(np.where(is_certain, np.abs(values), 0.0), is_certain)
    is_negative = np.signbit(values)
    texts = _laid_out(decimals).moved(is_negative).joined(is_negative * np.uint64(MINUS)).texts()
    for place in np.flatnonzero(~is_certain).tolist():
        texts[place] = write(float(values[place]))
    return texts


def _decimals(magnitudes: Array, is_certain: Array) -> Decimals:
    """Return the digits that the rule prints; clear `is_certain` where they may be others."""
    is_zero = magnitudes == 0
    exponents = np.floor(np.log10(np.where(is_zero, 1.0, magnitudes))).astype(np.int64)
    is_certain &= (exponents >= SMALLEST_EXPONENT) & (exponents <= LARGEST_EXPONENT)
    exponents = exponents.clip(SMALLEST_EXPONENT, LARGEST_EXPONENT)
    scaled = _scaled(magnitudes, MOST - 1 - exponents)
    long = np.rint(scaled)
    is_certain &= is_zero | (scaled >= 1e8) & (scaled < 1e9) & (np.abs(scaled - long) < 0.5 - TIE)
    # A tie of six digits needs no care: neither neighbour reads back as the value.
    short = np.rint(_scaled(magnitudes, FEWEST - 1 - exponents))
    is_short = _scaled(short, exponents - FEWEST + 1).astype(np.float32) == magnitudes
    numbers = np.where(is_short, short * 1e3, long)
    is_carried = numbers >= 1e9
    digits, used = _digits(np.where(is_carried, 1e8, numbers).astype(np.uint64))
    return Decimals(digits, exponents + is_carried, used, np.where(is_short, FEWEST, MOST))


def _scaled(values: Array, powers: Array) -> Array:
    """Return the values times powers of ten, rounded once."""
    scaled: Array
    if powers.min() >= 0:
        scaled = values * POWERS.take(powers)
    elif powers.max() <= 0:
        scaled = values / POWERS.take(-powers)
    else:
        scaled = values * POWERS.take(powers.clip(0)) / POWERS.take((-powers).clip(0))
    return scaled


def _digits(numbers: Array) -> tuple[Characters, Array]:
    """Return the nine digits of each number, and how many come before trailing zeros."""
    first = numbers // 100_000_000
    rest = numbers - first * 100_000_000
    # Eight digits are split in halves, these in pairs and those in digits, all halves and pairs at once; the
    # factors stand for divisions by 100 and by 10.
    halves = rest // 10_000
    halves |= (rest - halves * 10_000) << 32
    pairs = (halves * 10_486 >> 20) & 0x7F_0000_007F
    pairs |= (halves - pairs * 100) << 16
    digits = (pairs * 103 >> 10) & 0xF_000F_000F_000F
    digits |= (pairs - digits * 10) << 8
    # The position of the highest bit tells the last digit that is not zero.
    used = (np.frexp(digits.astype(np.float64))[1] + 15) >> 3
    digits |= EIGHT_ZEROS
    return Characters(first + ZERO | digits << 8, digits >> 56), used


def _laid_out(decimals: Decimals) -> Characters:
    """Return the texts of values without sign."""
    exponents, used = decimals.exponents, decimals.used
    is_fixed = (exponents >= SMALLEST_FIXED) & (exponents < decimals.most)
    is_whole = is_fixed & (exponents >= 0)
    # At least one digit follows the point of a whole number.
    digits = decimals.digits.first(np.where(is_whole, np.maximum(used, exponents + 2), used).clip(0, MOST))
    point = np.where(is_whole, exponents + 1, np.where(is_fixed | (used == 1), NOWHERE, 1))
    rest = digits.after(point).moved(np.ones_like(point))
    text = (
        digits.first(point).joined(rest.low, rest.high).joined(POINTS[0].take(point), POINTS[1].take(point))
    )
    leading = np.where(is_fixed & ~is_whole, 1 - exponents, 0)
    text = text.moved(leading).joined(LEADING[0].take(leading))
    if is_fixed.all():
        return text
    suffix = _exponent_texts(exponents, is_fixed, used + (used > 1))
    return text.joined(suffix.low, suffix.high)


def _exponent_texts(exponents: Array, is_fixed: Array, places: Array) -> Characters:
    """Return `e-05` after so many empty places, nothing for fixed ones."""
    power = np.abs(exponents)
    sign = np.where(exponents < 0, ord("-"), ord("+"))
    text = LETTER | sign << 8 | (power // 10 + ZERO) << 16 | (power % 10 + ZERO) << 24
    suffix = Characters(np.where(is_fixed, 0, text).astype(np.uint64), np.zeros(len(text), np.uint64))
    return suffix.moved(np.minimum(places, 8)).moved(np.maximum(places - 8, 0))
