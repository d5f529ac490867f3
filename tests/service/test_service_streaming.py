from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from pierhead.errors import UserCodeError
from pierhead.service.answers import Answer
from pierhead.service.chunks import Chunks
from pierhead.service.streaming import StreamedBody


def body(source: Iterator[Any]) -> StreamedBody:
    chunks = Chunks(source, "handler")
    return StreamedBody(next(chunks), chunks)


def test_parts_are_bytes_and_empty_ones_are_left_out() -> None:
    assert [b"a", "ä".encode(), b"c"] == list(body(iter([b"", "a", "", "ä", bytearray(b"c")])))


def test_whole_answer_has_no_stream() -> None:
    assert StreamedBody.of(Answer(b"whole")) is None


def test_failure_is_logged_once_and_looks_like_a_client_that_went_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def parts() -> Iterator[str]:
        yield "first"
        raise ValueError("torn")

    stream = body(parts())

    assert next(stream) == b"first"
    with pytest.raises(OSError, match="broken off") as broken:
        next(stream)
    stream.close()
    assert broken.value.errno == errno.EPIPE
    (record,) = caplog.records
    assert record.getMessage().count("Traceback") == 1


def test_close_runs_what_the_generator_has_at_its_end() -> None:
    events: list[str] = []

    def parts() -> Iterator[str]:
        try:
            yield "first"
            yield "second"
        except GeneratorExit:
            events.append("exit")
            raise
        finally:
            events.append("finally")

    stream = body(parts())
    next(stream)
    stream.close()

    assert ["exit", "finally"] == events


def test_failure_at_the_end_of_the_generator_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def parts() -> Iterator[str]:
        try:
            yield "first"
        finally:
            raise ValueError("while closing")

    stream = body(parts())
    next(stream)
    stream.close()

    assert "while closing" in caplog.text


def test_iterators_without_close_need_none() -> None:
    stream = body(iter(["a"]))

    stream.close()

    assert [b"a"] == list(stream)


def test_text_that_is_no_text_breaks_the_stream() -> None:
    stream = body(iter(["a", "\ud800"]))

    assert next(stream) == b"a"
    with pytest.raises(OSError, match="broken off"):
        next(stream)


def test_part_of_another_type_is_refused() -> None:
    with pytest.raises(UserCodeError, match="handler yielded a value of type int"):
        body(iter([3]))
