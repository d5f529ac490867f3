"""Real processes: started as leaders of groups, signalled, reaped; and a nursery that is a small script."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from pierhead.control import Forked, NurseryReady
from pierhead.logs import LogWriter
from pierhead.supervisor.events import FromNursery
from pierhead.supervisor.outputs import Outputs
from pierhead.supervisor.process import ProcessSpec
from pierhead.supervisor.spawner import NURSERY, Spawner

WAIT_FOR_A_SIGNAL = "import signal; signal.pause()"
NURSERY_SCRIPT = """
import json, socket, sys
connection = socket.socket(fileno=int(sys.argv[-1].removeprefix("--nursery=")))
def say(message, **values):
    connection.sendall(json.dumps({"message": message, **values}).encode() + b"\\n")
say("NurseryReady")
for line in connection.makefile():
    asked = json.loads(line)
    say("Forked", name=f"{asked['name']} {asked['arguments'][0]}", pid=7)
"""


@pytest.fixture
def reports() -> SimpleQueue[FromNursery]:
    return SimpleQueue()


@pytest.fixture
def spawner(reports: SimpleQueue[FromNursery]) -> Iterator[Spawner]:
    environ = {"PATH": os.environ["PATH"], "COLOUR": "blue", "SHAPE": "round"}
    spawner = Spawner(environ, reports.put, Outputs(LogWriter()))
    yield spawner
    spawner.close()


def python(code: str, *arguments: str, name: str = "child", **options: dict[str, str]) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-I", "-S", "-c", code, *arguments), **options)  # type: ignore[arg-type]


def spawn(spawner: Spawner, spec: ProcessSpec) -> int:
    pid = spawner.spawn(spec)
    assert pid is not None
    return pid


def reap(spawner: Spawner, pid: int) -> int:
    """Return the status that the spawner reports for a child, after its end."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return dict(spawner.reap())[pid]


def test_child_leads_a_process_group(spawner: Spawner) -> None:
    pid = spawn(spawner, python(WAIT_FOR_A_SIGNAL))

    assert pid == os.getpgid(pid)
    spawner.kill_group(pid, signal.SIGKILL)
    assert reap(spawner, pid) == -signal.SIGKILL


@pytest.mark.parametrize("status", [0, 3, 255])
def test_exit_status_is_reaped(status: int, spawner: Spawner) -> None:
    pid = spawn(spawner, python(f"raise SystemExit({status})"))

    assert status == reap(spawner, pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signal_that_killed_a_child_is_reaped_as_a_negative_number(number: int, spawner: Spawner) -> None:
    pid = spawn(spawner, python(WAIT_FOR_A_SIGNAL))

    spawner.kill(pid, number)

    assert -number == reap(spawner, pid)


def test_all_that_have_ended_are_reaped_at_once(spawner: Spawner) -> None:
    pids = {spawn(spawner, python("")) for _ in range(3)}
    for pid in pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert pids <= {pid for pid, _ in spawner.reap()}


def test_nothing_is_reaped_while_a_child_runs(spawner: Spawner) -> None:
    pid = spawn(spawner, python(WAIT_FOR_A_SIGNAL))

    assert pid not in dict(spawner.reap())
    spawner.kill_group(pid, signal.SIGKILL)
    reap(spawner, pid)


def test_reaping_without_children_yields_nothing(spawner: Spawner) -> None:
    code = (
        "from pierhead.logs import LogWriter\n"
        "from pierhead.supervisor.outputs import Outputs\n"
        "from pierhead.supervisor.spawner import Spawner\n"
        "print(list(Spawner({}, print, Outputs(LogWriter())).reap()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert result.stdout == "[]\n"


def test_signals_to_those_who_are_gone_are_no_errors(spawner: Spawner) -> None:
    pid = spawn(spawner, python(""))
    reap(spawner, pid)

    spawner.kill(pid, signal.SIGTERM)
    spawner.kill_group(pid, signal.SIGKILL)


def test_group_is_killed_with_what_its_leader_started(spawner: Spawner, tmp_path: Path) -> None:
    """The grandchild holds the writing end of a pipe: its end is the pipe's."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (
        f"import os, signal; os.fork(); f = open({str(pipe)!r}, 'w'); f.write('x'); f.flush(); signal.pause()"
    )
    pid = spawn(spawner, python(code))
    with pipe.open() as reader:
        assert reader.read(2) == "xx"

        spawner.kill_group(pid, signal.SIGKILL)

        assert reader.read() == ""
    assert reap(spawner, pid) == -signal.SIGKILL


def test_environment_is_the_spawner_s_with_the_spec_s_over_it(spawner: Spawner, tmp_path: Path) -> None:
    code = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    path = tmp_path / "environ.json"
    reap(spawner, spawn(spawner, python(code, str(path), environment={"SHAPE": "square", "SIZE": "big"})))

    environ = json.loads(path.read_text())
    assert (environ["COLOUR"], environ["SHAPE"], environ["SIZE"]) == ("blue", "square", "big")
    assert "HOME" not in environ


def test_child_inherits_no_sockets(spawner: Spawner, tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "kinds = []\n"
        "for each in os.listdir('/proc/self/fd'):\n"
        "    try: kinds.append(os.readlink(f'/proc/self/fd/{each}') + ' ' + each)\n"
        "    except OSError: pass\n"
        "open(sys.argv[1], 'w').write('\\n'.join(kinds))"
    )
    path = tmp_path / "descriptors"
    spawner.spawn(python(NURSERY_SCRIPT, name=NURSERY))
    left, right = socket.socketpair()
    with left, right:
        reap(spawner, spawn(spawner, python(code, str(path))))

    inherited = [line.rpartition(" ") for line in path.read_text().splitlines()]
    assert [
        number for target, _, number in inherited if target.startswith("socket:") and int(number) > 2
    ] == []


def test_child_starts_with_no_signal_blocked(spawner: Spawner, tmp_path: Path) -> None:
    code = "import signal, sys; open(sys.argv[1], 'w').write(str(signal.pthread_sigmask(0, [])))"
    path = tmp_path / "mask"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        reap(spawner, spawn(spawner, python(code, str(path))))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert path.read_text() == "set()"


def test_program_that_is_missing_raises(spawner: Spawner) -> None:
    with pytest.raises(FileNotFoundError):
        spawner.spawn(ProcessSpec("child", ("/nowhere/program",)))


def test_nursery_reports_and_forks_what_it_is_asked_for(
    spawner: Spawner, reports: SimpleQueue[FromNursery]
) -> None:
    pid = spawn(spawner, python(NURSERY_SCRIPT, name=NURSERY))
    assert FromNursery(pid, NurseryReady()) == reports.get(timeout=20)

    assert spawner.spawn(ProcessSpec("server", ("--port=1",), forked=True)) is None

    assert FromNursery(pid, Forked("server --port=1", 7)) == reports.get(timeout=20)
    spawner.kill_group(pid, signal.SIGKILL)
    reap(spawner, pid)


def test_asking_a_nursery_that_is_gone_is_no_error(
    spawner: Spawner, reports: SimpleQueue[FromNursery]
) -> None:
    pid = spawn(spawner, python(NURSERY_SCRIPT, name=NURSERY))
    reports.get(timeout=20)
    spawner.kill_group(pid, signal.SIGKILL)
    reap(spawner, pid)

    assert spawner.spawn(ProcessSpec("server", ("--port=1",), forked=True)) is None
