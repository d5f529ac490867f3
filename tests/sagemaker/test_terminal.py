"""Progress on a terminal and elsewhere."""

from __future__ import annotations

import io

from pierhead_sagemaker.terminal import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show_for(seconds: int, stream: io.StringIO) -> list[str]:
    instants = iter(tick / 2 for tick in range(2 * seconds + 2))
    progress = Progress("starting", stream, lambda: next(instants))
    for _ in range(2 * seconds):
        progress.show()
    return stream.getvalue().splitlines(keepends=True)


def test_a_file_gets_a_line_every_ten_seconds() -> None:
    assert show_for(25, io.StringIO()) == ["starting: 10 s\n", "starting: 20 s\n"]


def test_a_terminal_gets_one_line_renewed_each_second() -> None:
    stream = Terminal()
    show_for(3, stream)

    expected = "".join(f"\r\x1b[Kstarting: {second} s\r" for second in (1, 2, 3))
    assert expected == stream.getvalue()
