"""The container's memory limit, as control groups of both versions write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pierhead.supervisor.memory_limit import describe_want, memory_limit


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "536870912\n"}, 536870912),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/a/b\n", {"memory.max": "max\n", "a/b/memory.max": "1048576\n"}, 1048576),
        ("4:memory:/box\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        (
            "5:cpu:/x\n4:memory:/box\n",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "memory/box/memory.limit_in_bytes": "2097152\n",
            },
            2097152,
        ),
        ("", {}, None),
    ],
)
def test_lowest_limit_counts(
    tmp_path: Path, membership: str, files: dict[str, str], limit: int | None
) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        file = tmp_path / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    assert limit == memory_limit(tmp_path / "membership", tmp_path / "mount")


def test_limit_is_named_where_there_is_one() -> None:
    assert ", perhaps for want of memory (the container has 512 MB)" == describe_want(512 << 20)
    assert ", perhaps for want of memory" == describe_want(None)
