"""How full the memory is, by control groups of both versions and by the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from pierhead.supervisor.memory_use import MemoryUse, memory_use

MEGABYTE = 1 << 20
MACHINE = "MemTotal:       1048576 kB\nMemFree:  1 kB\nMemAvailable:    262144 kB\nHugePages_Total:       0\n"
OF_MACHINE = MemoryUse(768 * MEGABYTE, 1024 * MEGABYTE)
UNLIMITED = "9223372036854771712\n"


def version_1(limit: str, usage: int, **counts: int) -> Mapping[str, str]:
    stat = "".join(f"{name} {number}\n" for name, number in counts.items())
    return {
        "memory.limit_in_bytes": limit,
        "memory.usage_in_bytes": f"{usage}\n",
        "memory.stat": f"cache 7\n{stat}",
    }


def version_2(limit: str, usage: int, **counts: int) -> Mapping[str, str]:
    stat = "".join(f"{name} {number}\n" for name, number in counts.items())
    return {"memory.max": f"{limit}\n", "memory.current": f"{usage}\n", "memory.stat": f"anon 7\n{stat}"}


class Files:
    """A system's files, laid out in a folder."""

    def __init__(self, folder: Path) -> None:
        self._membership, self._mount, self._machine = (
            folder / name for name in ("membership", "mount", "meminfo")
        )

    def join(self, text: str) -> Files:
        self._membership.write_text(text)
        return self

    def machine(self, text: str) -> Files:
        self._machine.write_text(text)
        return self

    def group(self, name: str, files: Mapping[str, str]) -> Files:
        folder = self._mount / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text)
        return self

    def use(self) -> MemoryUse | None:
        return memory_use(self._membership, self._mount, self._machine)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path).machine(MACHINE)


def test_container_of_version_2_sees_its_group_as_the_root(files: Files) -> None:
    files.join("0::/\n").group("", version_2(str(64 * MEGABYTE), 48 * MEGABYTE))

    assert MemoryUse(48 * MEGABYTE, 64 * MEGABYTE) == files.use()


def test_container_of_version_1_sees_its_group_as_the_root(files: Files) -> None:
    files.join("4:memory:/docker/box\n").group("memory", version_1(str(64 * MEGABYTE), 48 * MEGABYTE))

    assert MemoryUse(48 * MEGABYTE, 64 * MEGABYTE) == files.use()


def test_own_group_below_the_root_counts(files: Files) -> None:
    files.join("0::/a/b\n").group("a/b", version_2("100", 40)).group("c", version_2("50", 50))

    assert MemoryUse(40, 100) == files.use()


def test_limit_of_an_ancestor_alone_counts_with_its_use(files: Files) -> None:
    files.join("0::/a/b/c\n").group("a", version_2("100", 70)).group("a/b/c", version_2("max", 10))

    assert MemoryUse(70, 100) == files.use()


def test_lowest_limit_of_nested_groups_counts(files: Files) -> None:
    files.join("0::/a/b\n").group("a", version_2("100", 70)).group("a/b", version_2("60", 10))

    assert MemoryUse(10, 60) == files.use()


def test_fullest_of_groups_with_the_same_limit_counts(files: Files) -> None:
    files.join("4:memory,cpu:/a/b\n")
    files.group("memory/a", version_1("100", 70)).group("memory/a/b", version_1("100", 10))

    assert MemoryUse(70, 100) == files.use()


def test_limit_above_that_cannot_be_seen_is_taken_from_the_statistics_of_version_1(files: Files) -> None:
    files.join("4:memory:/\n").group("memory", version_1(UNLIMITED, 30, hierarchical_memory_limit=200))

    assert MemoryUse(30, 200) == files.use()


@pytest.mark.parametrize(
    "files_of_group",
    [
        version_1("1000", 900, total_inactive_file=300, total_active_file=200, total_mapped_file=0),
        version_1("1000", 900, total_inactive_file=300, total_active_file=300, total_mapped_file=100),
        version_1("1000", 900, inactive_file=1, total_inactive_file=500),
        version_2("1000", 900, inactive_file=300, active_file=200, file_mapped=0),
        version_2("1000", 900, inactive_file=500, active_file=100, file_mapped=100),
    ],
)
def test_cached_files_that_nobody_has_mapped_are_not_used(
    files: Files, files_of_group: Mapping[str, str]
) -> None:
    name = "memory" if "memory.usage_in_bytes" in files_of_group else ""

    assert MemoryUse(400, 1000) == files.group(name, files_of_group).use()


@pytest.mark.parametrize("limit", ["max", UNLIMITED.strip(), "0", "-1", "", "ten", str(2048 * MEGABYTE)])
def test_machine_counts_where_no_group_has_less(files: Files, limit: str) -> None:
    files.join("0::/\n4:memory:/\n").group("", version_2(limit, 1)).group("memory", version_1(limit, 1))

    assert OF_MACHINE == files.use()


def test_machine_counts_where_the_use_of_a_group_cannot_be_read(files: Files) -> None:
    assert OF_MACHINE == files.group("", {"memory.max": "100\n"}).use()


def test_group_counts_where_its_statistics_cannot_be_read(files: Files) -> None:
    files.group("", {"memory.max": "100\n", "memory.current": "60\n"})

    assert MemoryUse(60, 100) == files.use()


@pytest.mark.parametrize(
    "membership",
    [
        "",
        "\n",
        "junk",
        ":::",
        "0:",
        "0::",
        "0::/../up\n",
        "0::/a\0b\n",
        "4:memory:\n",
        "0:://\n",
        "\udcff::/\udcfe",
    ],
)
def test_odd_membership_is_no_error(files: Files, tmp_path: Path, membership: str) -> None:
    (tmp_path / "membership").write_bytes(os.fsencode(membership))

    assert OF_MACHINE == files.use()


@pytest.mark.parametrize(
    "text",
    ["", "MemTotal: 1024 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal:\n", "MemAvailable: 1 kB"],
)
def test_nothing_is_known_where_nothing_can_be_read(files: Files, text: str) -> None:
    assert files.machine(text).use() is None


def test_files_that_are_folders_are_no_error(files: Files, tmp_path: Path) -> None:
    for name in ("mount/memory.max", "mount/memory.stat", "membership"):
        (tmp_path / name).mkdir(parents=True)

    assert OF_MACHINE == files.use()


def test_use_never_falls_below_nothing(files: Files) -> None:
    assert MemoryUse(0, 100) == files.group("", version_2("100", 10, inactive_file=20)).use()


def test_use_is_described_in_megabytes() -> None:
    use = MemoryUse(21_900 * MEGABYTE, 24_576 * MEGABYTE)

    assert "21,900 of 24,576 MB" == use.describe()
    assert 89.1 == round(use.percent, 1)


def test_this_machine_tells_its_use() -> None:
    use = memory_use()

    assert use is not None
    assert 0 < use.percent < 100
