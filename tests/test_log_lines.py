"""Lines of the log: one an event, whatever the event holds, and unharmed by how user code sets up logging."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pierhead.logs import Event, LineStream, LogWriter, current_request_id, request_in_log

TIME = 1_796_078_591.0625
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ [\w-]+(?: \[\w+\])?: ")
HOSTILE = (
    "a\n2026-01-01T00:00:00.000Z ERROR supervisor: forged",
    'a\r\n{"time": "2026-01-01T00:00:00.000Z", "level": "ERROR"}',
    "a\rb",
    "\x1b[2J\x1b[31mred",
    "nul \x00 del \x7f c1 \x9b31m",
    "line\u2028separator\u2029and\x85next\x0bvt\x0cff",
    "over\u202eridden \u2066isolate",
    "quotes \" and \\ and '",
    "lone surrogate \udc80",
)


@pytest.mark.parametrize("message", HOSTILE)
def test_text_of_a_client_begins_no_line_and_steers_no_terminal(message: str) -> None:
    lines = Event(TIME, "INFO", "nginx", message, "0a1b").as_text().encode().decode().splitlines()

    assert lines[0].startswith("2026-12-01T") or lines[0].startswith("2026-11-30T")
    assert LINE.match(lines[0])
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("message", HOSTILE)
def test_json_is_one_line_of_ascii_that_reads_back(message: str) -> None:
    line = Event(TIME, "INFO", "nginx", message, "0a1b").as_json()

    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {
        "time": Event(TIME, "INFO", "nginx", "").as_text()[:24],
        "level": "INFO",
        "program": "nginx",
        "request_id": "0a1b",
        "message": message,
    }


def test_time_is_utc_with_milliseconds() -> None:
    assert Event(0.9996, "INFO", "p", "m").as_text() == "1970-01-01T00:00:00.999Z INFO p: m"


def test_json_without_a_request_has_no_request_id() -> None:
    assert "request_id" not in json.loads(Event(TIME, "INFO", "p", "m").as_json())


def test_log_that_cannot_be_written_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    LogWriter("text", writer).write("x\n")
    os.close(writer)
    LogWriter("text", writer).write("x\n")


def test_full_pipe_is_waited_for() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    text = "x" * (1 << 20)
    thread = threading.Thread(target=LogWriter("text", writer).write, args=(text,))

    thread.start()
    received = 0
    while received < len(text):
        received += len(os.read(reader, 1 << 16))
    thread.join()

    os.close(writer)
    assert os.read(reader, 1) == b""


@pytest.fixture
def printed() -> Iterator[tuple[LineStream, Callable[[], list[str]]]]:
    """Yield a stream, and a function that returns what has been logged through it."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    stream = LineStream("handler", LogWriter("text", writer), io.StringIO())

    def read() -> list[str]:
        try:
            return os.read(reader, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return []

    yield stream, read
    os.close(reader)
    os.close(writer)


Printed = tuple[LineStream, Callable[[], list[str]]]


def test_each_printed_line_is_an_event_of_its_request(printed: Printed) -> None:
    stream, read = printed
    with request_in_log("0a1b"):
        print("one", 1, file=stream)
        print("two\nthree\r\n\n", file=stream)

    messages = [line.partition("Z ")[2] for line in read()]
    assert [f"INFO handler [0a1b]: {text}" for text in ("one 1", "two", "three")] == messages


def test_unfinished_line_is_written_when_it_is_flushed(printed: Printed) -> None:
    stream, read = printed
    print("half", end="", file=stream)

    assert read() == []
    stream.flush()
    assert [line.rpartition(" ")[2] for line in read()] == ["half"]
    stream.flush()
    assert read() == []


def test_threads_do_not_mix_their_lines(printed: Printed) -> None:
    stream, read = printed
    barrier = threading.Barrier(4)

    def work(name: str) -> None:
        with request_in_log(name):
            for part in ("a", "b", "c\n"):
                barrier.wait()
                stream.write(name + part)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(line.partition("handler ")[2] for line in read()) == [
        f"[{n}]: {n}a{n}b{n}c" for n in range(4)
    ]


def test_request_ends_with_its_block() -> None:
    with request_in_log("outer"):
        with request_in_log("inner"):
            assert current_request_id() == "inner"
        assert current_request_id() == "outer"
    assert current_request_id() == ""


BEGIN = """
    import logging, logging.config, sys, warnings
    from pierhead import logs
    writer = logs.LogWriter("text", 2)
    logs.configure_logging("worker", "info", writer)
    ours = logging.getLogger("pierhead.service.app")
    gunicorn = logging.getLogger("gunicorn.error")
    logs.admit_user_code("worker", writer)
    gunicorn.propagate = True
    theirs = logging.getLogger("theirs")
    with logs.keep_own_loggers(), logs.request_in_log("7"):
"""
END = """
    with logs.request_in_log("7"):
        for logger in (ours, gunicorn, theirs):
            logger.info("by %s", logger.name)
"""
SET_UPS = {
    "nothing": "pass",
    "basicConfig": "logging.basicConfig(level=logging.INFO)",
    "basicConfig by force": "logging.basicConfig(level=logging.INFO, force=True)",
    "a handler at the root": "logging.getLogger().addHandler(logging.StreamHandler())",
    "a handler on standard output": "logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))",
    "a handler of their logger": "theirs.addHandler(logging.StreamHandler())",
    "dictConfig": """logging.config.dictConfig({
            "version": 1,
            "handlers": {"out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}},
            "root": {"level": "INFO", "handlers": ["out"]},
            "loggers": {"theirs": {"level": "INFO"}},
        })""",
    "no handler at all": "logging.getLogger().handlers.clear(); theirs.addHandler(logging.StreamHandler())",
    "a stranger to the levels": "logging.getLogger().setLevel(logging.DEBUG)",
}


def run_script(script: str, folder: Path) -> list[str]:
    """Run Python in a process of its own; return the lines of its log."""
    path = folder / "script.py"
    path.write_text(script)
    result = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == ""
    return result.stderr.splitlines()


@pytest.mark.parametrize("set_up", SET_UPS)
def test_no_set_up_of_logging_doubles_or_ends_a_line(set_up: str, tmp_path: Path) -> None:
    indented = f"        {SET_UPS[set_up]}\n"
    lines = run_script(textwrap.dedent(BEGIN + indented + END), tmp_path)

    assert [line.rpartition(" ")[2] for line in lines] == ["pierhead.service.app", "gunicorn.error", "theirs"]
    assert all(LINE.match(line) and "[7]" in line for line in lines)


def test_level_is_that_of_all_but_what_user_code_makes_louder(tmp_path: Path) -> None:
    script = """
        logging.getLogger().setLevel(logging.DEBUG)
    ours.debug("ours")
    theirs.debug("theirs")
    """
    lines = run_script(textwrap.dedent(BEGIN + script), tmp_path)

    assert [line.rpartition(" ")[2] for line in lines] == ["theirs"]


def test_record_has_its_request_for_a_format_of_the_user(tmp_path: Path) -> None:
    script = """
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(request_id)s %(message)s"))
        theirs.addHandler(handler)
        theirs.info("named")
    """
    lines = run_script(textwrap.dedent(BEGIN + script), tmp_path)

    assert [line.partition(": ")[2] for line in lines] == ["7 named"]


def test_message_that_cannot_be_formatted_costs_itself_alone(tmp_path: Path) -> None:
    script = """
        theirs.info("%d", "x")
        theirs.info("next")
    """
    lines = run_script(textwrap.dedent(BEGIN + script), tmp_path)

    assert len(lines) == 2
    assert "script.py:" in lines[0]
    assert ": '%d': TypeError: %d format: a real number is required, not str" in lines[0]
    assert lines[-1].endswith(": next")
    assert all(LINE.match(line) for line in lines)


def test_traceback_and_warning_are_part_of_the_log(tmp_path: Path) -> None:
    script = """
        try:
            1 / 0
        except ZeroDivisionError:
            theirs.exception("failed")
        warnings.warn("careful")
    """
    lines = run_script(textwrap.dedent(BEGIN + script), tmp_path)

    assert lines[0].endswith("ERROR worker [7]: failed")
    assert "    ZeroDivisionError: division by zero" in lines
    assert any(LINE.match(line) and "careful" in line for line in lines)
