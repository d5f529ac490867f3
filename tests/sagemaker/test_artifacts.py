"""Hostile and broken archives: nothing outside the target is written or pointed to."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pierhead.errors import ArtifactError
from pierhead_sagemaker.artifacts import unpack_artifact


def regular(name: str, content: bytes = b"content") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b""


def symbolic(name: str, link: str) -> tuple[tarfile.TarInfo, bytes]:
    return special(name, tarfile.SYMTYPE, link)


def hard(name: str, link: str) -> tuple[tarfile.TarInfo, bytes]:
    return special(name, tarfile.LNKTYPE, link)


def pack(path: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "target"
    folder.mkdir(parents=True)
    return folder


def files_outside(tmp_path: Path) -> set[str]:
    return {path.name for path in (*tmp_path.iterdir(), *(tmp_path / "deep").iterdir())}


HOSTILE = {
    "absolute name": ([regular("/etc/evil")], "absolute name"),
    "climbing name": ([regular("../evil")], "'..' in its name"),
    "climbing name in the middle": ([regular("a/../../evil")], "'..' in its name"),
    "climbing folder": ([special("../evil", tarfile.DIRTYPE)], "'..' in its name"),
    "absolute symbolic link": ([symbolic("a", "/etc")], "may leave"),
    "climbing symbolic link": ([symbolic("a", "../evil")], "may leave"),
    "symbolic link that climbs later": ([symbolic("d/a", "b/../../../evil")], "may leave"),
    "symbolic link deep down": ([symbolic("d/a", "../../evil")], "may leave"),
    "link made before the one it runs through": (
        [symbolic("l", "d/s/../evil"), symbolic("d/s", "..")],
        "may leave",
    ),
    "file through a symbolic link": ([symbolic("a", "b"), regular("a/evil")], "through the symbolic link"),
    "file over a symbolic link": ([symbolic("a", "b"), regular("a")], "through the symbolic link"),
    "hard link outside": ([hard("a", "../evil")], "hard link"),
    "absolute hard link": ([hard("a", "/etc/passwd")], "hard link"),
    "hard link to a symbolic link": ([symbolic("a", "b"), hard("c", "a")], "hard link"),
    "hard link to nothing": ([hard("a", "b")], "hard link"),
    "pipe": ([special("a", tarfile.FIFOTYPE)], "device or a pipe"),
    "character device": ([special("a", tarfile.CHRTYPE)], "device or a pipe"),
    "block device": ([special("a", tarfile.BLKTYPE)], "device or a pipe"),
}


@pytest.mark.parametrize(("members", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_member_is_refused_by_name(
    members: list[tuple[tarfile.TarInfo, bytes]], reason: str, tmp_path: Path, target: Path
) -> None:
    archive = pack(tmp_path / "model.tar.gz", members)
    before = files_outside(tmp_path)

    with pytest.raises(ArtifactError, match=reason) as refusal:
        unpack_artifact(archive, target)

    assert any(repr(info.name) in str(refusal.value) for info, _ in members)
    assert before == files_outside(tmp_path)


@pytest.mark.parametrize(("name", "mode"), [("m.tar.gz", "w:gz"), ("m.tgz", "w:gz"), ("m.tar", "w")])
def test_archive_is_unpacked_whatever_its_ending(name: str, mode: str, tmp_path: Path, target: Path) -> None:
    unpack_artifact(pack(tmp_path / name, [regular("./half/1/saved_model.pb", b"graph")], mode), target)

    assert (target / "half/1/saved_model.pb").read_bytes() == b"graph"


def test_links_that_stay_inside_are_kept(tmp_path: Path, target: Path) -> None:
    members = [regular("m/1/a", b"weights"), symbolic("n/1/a", "../../m/1/a"), hard("h", "m/1/a")]

    unpack_artifact(pack(tmp_path / "model.tar.gz", members), target)

    assert [(target / name).read_bytes() for name in ("n/1/a", "h")] == [b"weights"] * 2


def test_hidden_files_of_macos_are_no_matter(tmp_path: Path, target: Path) -> None:
    members = [regular("m/1/saved_model.pb"), regular("m/._1"), regular(".DS_Store")]

    unpack_artifact(pack(tmp_path / "model.tar.gz", members), target)

    assert (target / "m/._1").is_file()


def test_permissions_are_tamed(tmp_path: Path, target: Path) -> None:
    member = regular("a")
    member[0].mode = 0o6777

    unpack_artifact(pack(tmp_path / "model.tar.gz", [member]), target)

    assert (target / "a").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 a zip", b"\x1f\x8b garbage"], ids=["empty", "zip", "gzip"]
)
def test_what_is_no_archive_is_told_in_a_sentence(content: bytes, tmp_path: Path, target: Path) -> None:
    archive = tmp_path / "model.tar.gz"
    archive.write_bytes(content)

    with pytest.raises(ArtifactError, match=r"model\.tar\.gz is not a tar archive, or is damaged"):
        unpack_artifact(archive, target)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_truncated_gzip_is_told_in_a_sentence(share: float, tmp_path: Path, target: Path) -> None:
    archive = pack(tmp_path / "model.tar.gz", [regular("a", os.urandom(100_000)), regular("b")])
    archive.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])

    with pytest.raises(ArtifactError, match=r"ends too early"):
        unpack_artifact(archive, target)


def test_truncated_tar_is_told_in_a_sentence(tmp_path: Path, target: Path) -> None:
    archive = pack(tmp_path / "model.tar", [regular("a", bytes(100_000))], "w")
    archive.write_bytes(archive.read_bytes()[:50_000])

    with pytest.raises(ArtifactError, match=r"ends too early"):
        unpack_artifact(archive, target)


def test_damaged_gzip_is_told_in_a_sentence(tmp_path: Path, target: Path) -> None:
    archive = pack(tmp_path / "model.tar.gz", [regular("a", bytes(range(256)) * 1000)])
    content = bytearray(archive.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    archive.write_bytes(content)

    with pytest.raises(ArtifactError, match=r"model\.tar\.gz"):
        unpack_artifact(archive, target)


def test_folder_that_holds_something_is_refused(tmp_path: Path, target: Path) -> None:
    (target / "a").touch()

    with pytest.raises(ArtifactError, match="not empty"):
        unpack_artifact(pack(tmp_path / "model.tar.gz", [regular("b")]), target)


PIECES = st.lists(st.sampled_from(["a", "b", "..", "."]), min_size=1, max_size=4).map("/".join)
MEMBERS = st.lists(
    st.one_of(
        st.builds(regular, PIECES), st.builds(symbolic, PIECES, PIECES), st.builds(hard, PIECES, PIECES)
    ),
    max_size=6,
)


@given(members=MEMBERS)
@settings(max_examples=150, deadline=None, database=None)
def test_no_series_of_members_leaves_the_target(
    members: list[tuple[tarfile.TarInfo, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("links").resolve()
    target = top / "x" / "target"
    target.mkdir(parents=True)
    with suppress(ArtifactError):
        unpack_artifact(pack(top / "model.tar", members, "w"), target)

    assert {"model.tar", "x"} == {path.name for path in top.iterdir()}
    assert [path.name for path in (top / "x").iterdir()] == ["target"]
    for path in target.rglob("*"):
        assert os.path.commonpath([target, os.path.realpath(path)]) == str(target)
