"""Requests whose Content-Encoding is gzip, decoded before a handler or a hook sees them."""

from __future__ import annotations

import io
from collections.abc import MutableMapping
from typing import Any

from pierhead.errors import UnsupportedMediaType
from pierhead.formats.encodings import GZIP, content_coding, decoded

__all__ = ["decode_body"]

HEADER = "HTTP_CONTENT_ENCODING"


def decode_body(environ: MutableMapping[str, Any], largest: int) -> None:
    """Replace a request's gzip body in its WSGI environment; `largest` is in bytes.

    Afterwards the request has no Content-Encoding, and the length of what it now holds. Other encodings stay:
    a hook may know them. Raises PayloadTooLarge, and ServingError (INVALID_ARGUMENT) for damaged bodies.
    """
    header = environ.get(HEADER)
    if not header or not _is_gzip(header):
        return
    body = decoded(environ["wsgi.input"].read(), header, largest)
    del environ[HEADER]
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    environ.update({"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))})


def _is_gzip(header: str) -> bool:
    try:
        return content_coding(header) == GZIP
    except UnsupportedMediaType:
        return False
