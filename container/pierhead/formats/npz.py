"""Archives of named arrays, as `numpy.savez` and `savez_compressed` make them, read within a limit."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

from pierhead.errors import ServingError
from pierhead.formats.encodings import too_large
from pierhead.formats.json_tensors import invalid
from pierhead.formats.npy import read_npy, write_npy
from pierhead.formats.tensors import Array

__all__ = ["read_npz", "write_npz"]

SUFFIX = ".npy"
READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# An entry of 46 bytes becomes an object of 600.
MOST_MEMBERS = 1024
ENTRY = b"PK\x01\x02"
IS_ENCRYPTED = 1
# What zipfile raises for archives that are none.
DAMAGE = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
)


def read_npz(body: bytes, largest: int) -> dict[str, Array]:
    """Return the arrays by name; together they take at most `largest` bytes.

    Raises PayloadTooLarge beyond that, and ServingError (INVALID_ARGUMENT) where the body is no such archive
    or one of its members is no array that can be read.
    """
    if body.count(ENTRY) > MOST_MEMBERS:
        raise _no_npz(f"it has more than {MOST_MEMBERS} members")
    arrays: dict[str, Array] = {}
    room = largest
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            for member in archive.infolist():
                name = _array_name(member, arrays)
                content = _content(archive, member, room)
                if len(content) > room:
                    raise too_large(largest)
                room -= len(content)
                arrays[name] = _array(name, content)
    except DAMAGE as problem:
        raise _no_npz(str(problem)) from problem
    return arrays


def write_npz(arrays: Mapping[str, Array]) -> bytes:
    """Return the archive of the arrays in the order of their names; the same arrays make the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in sorted(arrays):
            # A ZipInfo of one's own has no time in it.
            archive.writestr(zipfile.ZipInfo(name + SUFFIX), write_npy(arrays[name]))
    return stream.getvalue()


def _array_name(member: zipfile.ZipInfo, known: Mapping[str, Array]) -> str:
    name = member.filename.removesuffix(SUFFIX)
    if name == member.filename or name in known:
        raise _no_npz(f"its member {member.filename!r} is no {SUFFIX} file, or is there twice")
    if member.compress_type not in READABLE or member.flag_bits & IS_ENCRYPTED:
        raise _no_npz(f"its member {member.filename!r} is encrypted, or compressed in an unusual way")
    return name


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, room: int) -> bytes:
    """Return a member's bytes; of one that is longer than `room`, one more than that."""
    with archive.open(member) as stream:
        return stream.read(room + 1)


def _array(name: str, content: bytes) -> Array:
    try:
        return read_npy(content)
    except ServingError as problem:
        raise invalid(f"{name}: {problem.message}") from problem


def _no_npz(reason: str) -> ServingError:
    return invalid(f"the body is no archive of numpy arrays: {reason}")
