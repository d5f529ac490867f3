"""Unpacking of `model.tar.gz`: nothing is written, and no link points, outside the folder it goes into.

An archive comes from anywhere, so each member is judged before it is written, in the archive's order:
- a name is relative and holds no `..`;
- no part of a member's path is a symbolic link, so a name means what it says;
- a symbolic link climbs with leading `..` only and never above the folder. Since no folder on the way is a
  link, it ends inside, through whatever further links of this kind it leads;
- a hard link names a regular file that the archive has already brought.
`tarfile.data_filter` comes after these: it takes owners, set-uid bits and write permissions of others away.
On its own it would strip the slash of an absolute name, and it trusts links whose way is changed later.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from pierhead.errors import ArtifactError

__all__ = ["is_archive_name", "unpack_artifact"]

ENDINGS = (".tar.gz", ".tgz", ".tar")
PARENT = ".."
READ_BYTES = 1 << 20


def is_archive_name(path: Path) -> bool:
    """Tell whether a file is called as a packed artifact is."""
    return path.name.endswith(ENDINGS)


def unpack_artifact(archive: Path, target: Path) -> None:
    """Unpack an archive (.tar.gz, .tgz or .tar) into `target`, an empty folder.

    Raises ArtifactError, naming the member, where one is unsafe, and where the file is no archive, damaged
    or cut short. What was unpacked until then stays in `target`.
    """
    if any(target.iterdir()):
        raise ArtifactError(f"{target} is not empty: an archive is unpacked into an empty folder")
    with _errors_of_opening(archive):
        opened = tarfile.open(archive)  # noqa: SIM115 - closed by the next `with`
    with opened as members, _errors_of_reading(archive):
        for member in members:
            refusal = _refuse(member, target)
            if refusal:
                raise ArtifactError(f"{archive} is unsafe: its member {member.name!r} {refusal}")
            _write(members, member, target)
        _read_to_end(members)


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if not (member.issym() or member.islnk()):
        members.extract(member, target, filter=tarfile.data_filter)
        return
    # Where a link cannot be made, tarfile writes the member that it points to instead, which no filter has
    # seen, and follows a link to itself without end.
    place = target / member.name
    place.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        place.symlink_to(member.linkname)
    else:
        place.hardlink_to(target / member.linkname)


def _read_to_end(members: tarfile.TarFile) -> None:
    """Read what follows the last member: the checksum of all comes last, and tarfile stops before it."""
    while members.fileobj is not None and members.fileobj.read(READ_BYTES):
        pass


@contextmanager
def _errors_of_opening(archive: Path) -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise ArtifactError(_cut_short(archive)) from error
    except (tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise ArtifactError(
            f"{archive} is not a tar archive, or is damaged; expected a model.tar.gz"
        ) from error
    except OSError as error:
        raise ArtifactError(f"{archive} cannot be read: {error.strerror or error}") from error


@contextmanager
def _errors_of_reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise ArtifactError(_cut_short(archive)) from error
    except tarfile.FilterError as error:
        raise ArtifactError(f"{archive} is unsafe: {error}") from error
    except tarfile.ReadError as error:
        reason = _cut_short(archive) if "unexpected end" in str(error) else f"{archive} is damaged: {error}"
        raise ArtifactError(reason) from error
    except (tarfile.TarError, zlib.error, lzma.LZMAError, OSError) as error:
        raise ArtifactError(f"{archive} cannot be unpacked: {error}") from error


def _cut_short(archive: Path) -> str:
    return f"{archive} ends too early: it was not written or copied to its end"


def _refuse(member: tarfile.TarInfo, target: Path) -> str | None:
    """Return why a member is refused, as the second half of a sentence, or None."""
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "is a device or a pipe"
    refusal = _refuse_path(member.name, target)
    if refusal is None and member.issym():
        refusal = _refuse_symbolic_link(member)
    if refusal is None and member.islnk():
        refusal = _refuse_hard_link(member, target)
    return refusal


def _refuse_path(name: str, target: Path) -> str | None:
    path = PurePosixPath(name)
    if "\0" in name:
        return "has a zero byte in its name"
    if path.is_absolute():
        return "has an absolute name"
    if PARENT in path.parts:
        return "has '..' in its name"
    for place in (path, *path.parents):
        if place.parts and (target / place).is_symlink():
            return f"would be written through the symbolic link '{place}'"
    return None


def _refuse_symbolic_link(member: tarfile.TarInfo) -> str | None:
    link = PurePosixPath(member.linkname)
    climbs = next((n for n, part in enumerate(link.parts) if part != PARENT), len(link.parts))
    depth = len(PurePosixPath(member.name).parts) - 1
    if "\0" in member.linkname or link.is_absolute() or climbs > depth or PARENT in link.parts[climbs:]:
        return f"is a symbolic link that may leave the artifact: {member.linkname!r}"
    return None


def _refuse_hard_link(member: tarfile.TarInfo, target: Path) -> str | None:
    if _refuse_path(member.linkname, target) or not (target / member.linkname).is_file():
        return f"is a hard link to what is no file of the artifact: {member.linkname!r}"
    return None
