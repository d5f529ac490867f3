"""The charset of a Content-Type, for bodies of text: whatever it is, what is read is UTF-8.

Without one, and with UTF-8, the body is taken as it stands: bytes in it that are not UTF-8 come through to
the model's strings, as TensorFlow Serving lets them. The table is closed, because Python knows codecs that
are no charsets.
"""

from __future__ import annotations

from pierhead.errors import Code, ServingError, UnsupportedMediaType

__all__ = ["charset", "utf8_body"]

UTF_8 = "utf-8"
CODECS = {
    UTF_8: None,
    "utf8": None,
    "us-ascii": None,
    "ascii": None,
    "iso-8859-1": "latin-1",
    "latin1": "latin-1",
    "windows-1252": "cp1252",
    "utf-16": "utf-16",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "utf-32": "utf-32",
    "utf-32le": "utf-32-le",
    "utf-32be": "utf-32-be",
}


def charset(content_type: str) -> str:
    """Return the charset that a Content-Type names, in lower case; UTF-8 where it names none."""
    for parameter in content_type.split(";")[1:]:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset":
            return value.strip(" \t\"'").lower() or UTF_8
    return UTF_8


def utf8_body(body: bytes, content_type: str) -> bytes:
    """Return the body in UTF-8.

    Raises UnsupportedMediaType for a charset that is not known, ServingError (INVALID_ARGUMENT) where the
    body is not of it.
    """
    name = charset(content_type)
    if name not in CODECS:
        known = ", ".join(CODECS)
        raise UnsupportedMediaType(f"Content-Type {content_type} cannot be read; supported charsets: {known}")
    codec = CODECS[name]
    if codec is None:
        return body
    try:
        return body.decode(codec).encode()
    except UnicodeError as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"the body is not text in {name}: {problem}") from problem
