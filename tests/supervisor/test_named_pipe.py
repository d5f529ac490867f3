"""Whoever writes to a named pipe is heard, and does not wait."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue

from pierhead.supervisor.named_pipe import NamedPipe

SECONDS = 30


def test_what_several_writers_write_is_taken(tmp_path: Path) -> None:
    taken: SimpleQueue[bytes] = SimpleQueue()
    pipe = NamedPipe(tmp_path / "pipe", taken.put)
    pipe.open()

    for line in (b"one\n", b"two\n"):
        with (tmp_path / "pipe").open("wb") as writer:
            writer.write(line)
        assert line == taken.get(timeout=SECONDS)
    assert pipe.is_read
    pipe.close()
    assert not pipe.is_read


def test_what_was_written_before_the_end_is_taken(tmp_path: Path) -> None:
    chunks: list[bytes] = []
    pipe = NamedPipe(tmp_path / "pipe", chunks.append)
    with (tmp_path / "pipe").open("wb") as writer:
        writer.write(b"line\n" * 20_000)
    pipe.open()
    pipe.close()

    assert b"line\n" * 20_000 == b"".join(chunks)
