"""Content-Encoding of requests (RFC 9110, section 8.4): gzip, decompressed in steps and within a limit.

A gzip body may have several members one after another (RFC 1952, section 2.2), as bgzip and `cat a.gz b.gz`
make them.
"""

from __future__ import annotations

import zlib

from pierhead.errors import Code, PayloadTooLarge, ServingError, UnsupportedMediaType

__all__ = ["GZIP", "LARGEST_DECOMPRESSED", "content_coding", "decoded", "too_large"]

GZIP = "gzip"
SPELLINGS = {"gzip": GZIP, "x-gzip": GZIP}
AS_IT_STANDS = ("", "identity")
LARGEST_DECOMPRESSED = 1024 << 20
GZIP_WINDOW = 31
STEP = 1 << 16
# A member costs a decompressor, so a body of nothing but empty ones would cost hours.
FEW_MEMBERS = 1000
BYTES_OF_A_MEMBER = 1024


def content_coding(header: str | None) -> str:
    """Return `gzip`, or an empty text for a body that stands as it is.

    Raises UnsupportedMediaType for every other Content-Encoding, and for several.
    """
    names = [name.strip().lower() for name in (header or "").split(",")]
    codings = [name for name in names if name not in AS_IT_STANDS]
    if not codings:
        return ""
    if len(codings) > 1 or codings[0] not in SPELLINGS:
        raise UnsupportedMediaType(
            f"Content-Encoding {', '.join(codings)} cannot be decoded; supported: {GZIP}, identity"
        )
    return SPELLINGS[codings[0]]


def decoded(body: bytes, header: str | None, largest: int = LARGEST_DECOMPRESSED) -> bytes:
    """Return a body as it was before its Content-Encoding; `largest` is in bytes.

    Raises UnsupportedMediaType for an unknown one, PayloadTooLarge beyond `largest`, and ServingError
    (INVALID_ARGUMENT) for a body that is no gzip or is cut off.
    """
    if content_coding(header) != GZIP or not body:
        return body
    try:
        return _gunzipped(body, largest)
    except zlib.error as problem:
        raise _damaged(str(problem)) from problem


def too_large(largest: int) -> PayloadTooLarge:
    """Return the refusal of a body that would become larger than `largest` bytes."""
    return PayloadTooLarge(
        f"the body is larger, once decompressed, than PIERHEAD_MAX_DECOMPRESSED_MB={largest >> 20} allows"
    )


def _gunzipped(body: bytes, largest: int) -> bytes:
    pieces: list[bytes] = []
    at, room, members = 0, largest, 0
    inflater = zlib.decompressobj(GZIP_WINDOW)
    while at < len(body):
        step = body[at : at + STEP]
        # As all is read that fits, nothing of a step is ever left over.
        pieces.append(inflater.decompress(step, room + 1))
        room -= len(pieces[-1])
        if room < 0:
            raise too_large(largest)
        at += len(step) - len(inflater.unused_data)
        is_whole = inflater.eof
        if is_whole:
            members += 1
            inflater = zlib.decompressobj(GZIP_WINDOW)
        if members > FEW_MEMBERS + at // BYTES_OF_A_MEMBER:
            raise _damaged("it has too many members")
    if not is_whole:
        raise _damaged("it is cut off")
    return b"".join(pieces)


def _damaged(reason: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, f"the body is not gzip as Content-Encoding says: {reason}")
