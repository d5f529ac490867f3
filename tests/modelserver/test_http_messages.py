"""What an answer is on the wire."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from pierhead.modelserver.http_messages import Answer, head


def lines(answer: Answer, connection: str | None = None) -> list[str]:
    """Return the lines of the head without its date."""
    return [line for line in head(answer, connection).decode().split("\r\n") if not line.startswith("Date: ")]


def test_head_has_all_its_lines_in_order() -> None:
    answer = Answer(404, b"gone", "text/plain", (("A", "1"), ("B", "2")))

    assert [
        "HTTP/1.1 404 Not Found",
        "Content-Type: text/plain",
        "Content-Length: 4",
        "A: 1",
        "B: 2",
        "Connection: close",
        "",
        "",
    ] == lines(answer, "close")


def test_heads_of_one_second_differ_where_their_answers_do() -> None:
    first, second = lines(Answer(200, b"1")), lines(Answer(200, b"12"))

    assert ["Content-Length: 1", "Content-Length: 2"] == [first[2], second[2]]
    assert "HTTP/1.1 499 Client Error" == lines(Answer(499))[0]


def test_date_is_now() -> None:
    before = int(time.time())
    date = head(Answer(200), None).decode().split("\r\n")[2].removeprefix("Date: ")

    assert before <= parsedate_to_datetime(date).timestamp() <= time.time()
