"""What processes write by themselves: read line by line, nothing lost, and nobody held up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pierhead.logs import LogWriter
from pierhead.supervisor.outputs import Outputs, read_line
from pierhead.supervisor.process import ProcessSpec

SPEC = ProcessSpec("child", ("/bin/child",))
NGINX = ProcessSpec("nginx", ("/bin/nginx",), keeps_stdout=True)


class Log:
    """A file that is the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.outputs = Outputs(LogWriter("text", self.descriptor))

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def messages(self) -> list[str]:
        return [re.sub(r"^\S+Z ", "", line) for line in self.lines()]

    def run(self, code: str, spec: ProcessSpec = SPEC, *, wait: bool = True) -> int:
        with self.outputs.pipe(spec) as actions:
            pid = os.posix_spawn(
                sys.executable, [sys.executable, "-c", code], os.environ, file_actions=actions
            )
        if wait:
            os.waitpid(pid, 0)
            self.outputs.close(5)
        return pid


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def test_both_streams_are_read_line_by_line_in_their_order(log: Log) -> None:
    log.run("import os; os.write(1, b'a\\nb\\r\\n\\n'); os.write(2, b'c\\n'); os.write(1, b'd')")

    assert log.messages() == [f"INFO child: {name}" for name in "abcd"]


def test_last_words_of_a_process_are_not_lost(log: Log) -> None:
    log.run("import os; os.write(2, b'x\\n' * 30_000 + b'end'); os.kill(os.getpid(), 9)")

    assert len(log.lines()) == 30_001
    assert log.messages()[-1] == "INFO child: end"


def test_line_without_an_end_is_not_waited_for(log: Log) -> None:
    pid = log.run("import os, signal; os.write(1, b'half'); signal.pause()", wait=False)
    deadline = time.monotonic() + 10
    while not log.lines():
        assert time.monotonic() < deadline
    os.kill(pid, 9)
    os.waitpid(pid, 0)

    assert log.messages() == ["INFO child: half"]


def test_endless_line_is_cut(log: Log) -> None:
    log.run("import os; os.write(1, b'x' * 200_000)")

    assert sum(line.count("x") for line in log.lines()) == 200_000
    assert max(map(len, log.lines())) < 140_000


def test_text_that_is_not_utf_8_is_escaped(log: Log) -> None:
    log.run("import os; os.write(1, b'\\xff\\x1b[31m\\n')")

    assert log.messages() == [r"INFO child: \xff\x1b[31m"]


def test_nginx_keeps_standard_output_and_never_waits_for_its_log(log: Log) -> None:
    with log.outputs.pipe(NGINX) as actions:
        assert [descriptor for _, _, descriptor in actions] == [2]
        writer = actions[0][1]
        assert not os.get_blocking(writer)
        os.write(writer, b"2026/11/30 22:43:11 [error] 7#7: *1 connect() failed\n")
    log.outputs.close(5)

    assert log.messages() == ["ERROR nginx: *1 connect() failed"]


def test_pipe_that_a_stranger_holds_is_given_up(log: Log) -> None:
    with log.outputs.pipe(SPEC) as actions:
        held = os.dup(actions[0][1])

    log.outputs.close(0.05)
    os.write(held, b"late\n")
    os.close(held)
    log.outputs.close(5)

    assert log.messages() == ["INFO child: late"]


def test_last_lines_of_a_process_that_has_ended_are_all_there(log: Log) -> None:
    code = (
        "import os; os.write(1, b'%d\\n' * 1000 % (*range(1000),)); os.write(2, b'  what():  x'); os.abort()"
    )
    os.waitpid(log.run(code, wait=False), 0)

    assert (*map(str, range(981, 1000)), "  what():  x") == log.outputs.last_lines("child", 10)


def test_last_lines_are_those_of_the_log_without_time_and_level(log: Log) -> None:
    os.waitpid(log.run("print('2026-11-30 22:43:11.123456: F a/env.cc:7] Check failed')", wait=False), 0)

    assert ("a/env.cc:7] Check failed",) == log.outputs.last_lines("child", 10)


def test_process_that_is_started_again_has_new_last_lines(log: Log) -> None:
    log.run("print('first')")
    os.waitpid(log.run("print('second')", wait=False), 0)

    assert ("second",) == log.outputs.last_lines("child", 10)


def test_each_process_has_last_lines_of_its_own_until_they_are_forgotten(log: Log) -> None:
    log.run("print('a')", ProcessSpec("m/a", ("/bin/a",)))
    log.run("print('b')", ProcessSpec("m/b", ("/bin/b",)))

    assert (("a",), ("b",)) == (log.outputs.last_lines("m/a"), log.outputs.last_lines("m/b"))
    log.outputs.forget("m/a")
    log.outputs.forget("m/a")
    assert ((), ("b",)) == (log.outputs.last_lines("m/a"), log.outputs.last_lines("m/b"))


def test_later_part_of_a_long_line_is_no_last_line_of_its_own(log: Log) -> None:
    log.run("import os; os.write(1, b'path: ' + b'/' * 65_530); os.write(1, b'out of memory')")

    (line,) = log.outputs.last_lines("child")
    assert line.startswith("path: ")


def test_later_part_of_a_line_that_comes_slowly_is_no_last_line_of_its_own(log: Log) -> None:
    with log.outputs.pipe(SPEC) as actions:
        writer = os.dup(actions[0][1])
    os.write(writer, b"a folder called ")
    deadline = time.monotonic() + 10
    while not log.lines():
        assert time.monotonic() < deadline
    os.write(writer, b"out of memory\nnext\n")
    os.close(writer)

    assert ("a folder called out of memory", "next") == log.outputs.last_lines("child", 10)


def test_last_lines_are_not_waited_for_without_end(log: Log) -> None:
    with log.outputs.pipe(SPEC) as actions:
        held = os.dup(actions[0][1])

    assert log.outputs.last_lines("child", 0.05) == ()
    os.close(held)


def test_lines_of_a_process_whose_name_was_forgotten_still_reach_the_log(log: Log) -> None:
    pid = log.run("import os; os.write(1, b'late')", wait=False)
    log.outputs.forget("child")
    os.waitpid(pid, 0)
    log.outputs.close(5)

    assert log.messages() == ["INFO child: late"]


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        ("2026/11/30 22:43:11 [warn] 7#8: *9 buffered", "WARNING", "*9 buffered"),
        ("2026/11/30 22:43:11 [emerg] bind() failed", "CRITICAL", "bind() failed"),
        ("2026/11/30 22:43:11 [notice] 7#8: start", "INFO", "start"),
        ("2026-11-30 22:43:11.123456: W tensorflow/a.cc:1] slow", "WARNING", "tensorflow/a.cc:1] slow"),
        ("2026-11-30 22:43:11.123456: I tensorflow/a.cc:1] fine", "INFO", "tensorflow/a.cc:1] fine"),
        ("E0000 00:00:1732.123456    4321 a.cc:12] bad", "ERROR", "a.cc:12] bad"),
        ("I am no level", "INFO", "I am no level"),
        ("ERROR: No matching distribution", "INFO", "ERROR: No matching distribution"),
        ("", "INFO", ""),
    ],
)
def test_level_is_read_where_a_line_begins_with_one(line: str, level: str, message: str) -> None:
    assert (level, message) == read_line(line)


def test_supervisor_that_is_gone_ends_no_reader(tmp_path: Path) -> None:
    """A log that cannot be written any more does not hold up the process that writes to the pipe."""
    code = (
        "import os, sys\n"
        "from pierhead.logs import LogWriter\n"
        "from pierhead.supervisor.outputs import Outputs\n"
        "from pierhead.supervisor.process import ProcessSpec\n"
        "reader, writer = os.pipe(); os.close(reader)\n"
        "outputs = Outputs(LogWriter('text', writer))\n"
        "with outputs.pipe(ProcessSpec('x', ('x',))) as actions:\n"
        "    held = os.dup(actions[0][1])\n"
        "for _ in range(100): os.write(held, b'x' * 4000 + b'\\n')\n"
        "os.close(held); outputs.close(5)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)

    assert result.returncode == 0
