"""`pierhead serve` as a user runs it: a process, its output, its signals and its status."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pierhead_sagemaker.__main__ import main

Layout = Callable[..., Path]
Serve = Callable[..., "subprocess.Popen[str]"]
GRAPH = "half/1/saved_model.pb"

# The command's own lines, with the stand-in instead of the checkout's program.
SCRIPT = """
import os, pathlib, sys
from pierhead_sagemaker import __main__, serve
artifact, port, program = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
serve.run = lambda _options: serve.serve_artifact(artifact, os.environ, port=port, program=program)
sys.exit(__main__.main(["serve", str(artifact)]))
"""


@pytest.fixture
def serve(tmp_path: Path, fake_serve: Any, free_port: int) -> Iterator[Serve]:
    running: list[subprocess.Popen[str]] = []
    temporary = tmp_path / "tmp"
    temporary.mkdir()

    def start(artifact: Path, **variables: str) -> subprocess.Popen[str]:
        environ = {**os.environ, **variables, "TMPDIR": str(temporary)}
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, artifact, str(free_port), fake_serve.program],
            env={**environ, "FAKE_REPORT": str(fake_serve.report_file)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.terminate()
    if fake_serve.report_file.exists():
        kill_if_left(fake_serve.report()["pid"])
    for process in running:
        process.communicate(timeout=30)


def kill_if_left(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Return stdout up to the line that holds the text."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            break
    return "".join(lines)


def test_models_signatures_and_request_are_shown(serve: Serve, lay: Layout, free_port: int) -> None:
    said = read_until(serve(lay(GRAPH)), "curl")

    url = f"http://127.0.0.1:{free_port}"
    expected = f"""\
Serving at {url}; Ctrl-C stops it.

half, version 1
  serving_default  x float32 [?] -> y float32 [?]

Try it:
  curl -s -X POST {url}/invocations -H 'Content-Type: application/json' -d '{{"instances": [1.0, 2.0, 5.0]}}'
"""
    assert expected == said


def test_hooks_without_a_sample_are_remarked_on(serve: Serve, lay: Layout) -> None:
    process = serve(lay(GRAPH, inference="def handler(data, context): ...\n"))

    assert "hooks in code/ may want another" in read_until(process, "hooks")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_line_shown_works_when_copied(serve: Serve, lay: Layout) -> None:
    root = lay(GRAPH, "sample.wav")
    (root / "sample.wav").write_bytes(b"RIFF\r\n\0x")
    line = read_until(serve(root), "curl").splitlines()[-1]

    answer = subprocess.run(shlex.split(line), capture_output=True, text=True, check=True, timeout=30)

    assert answer.stdout == "audio/wav 8"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_stops_all_and_leaves_nothing(
    number: int, serve: Serve, lay: Layout, fake_serve: Any, tmp_path: Path
) -> None:
    process = serve(lay(GRAPH))
    read_until(process, "curl")

    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 0
    assert (said.splitlines()) == [
        "fake: started",
        "pierhead: stopping; Ctrl-C hastens it.",
        "fake: asked to end",
    ]
    assert is_gone(fake_serve.report()["pid"])
    assert list((tmp_path / "tmp").iterdir()) == []


def test_second_interrupt_hastens(serve: Serve, lay: Layout, fake_serve: Any) -> None:
    process = serve(lay(GRAPH), FAKE_MODE="stubborn")
    read_until(process, "curl")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    for line in process.stderr:
        if "asked to end" in line:
            break
    begin = time.monotonic()

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    assert process.returncode == 0
    assert time.monotonic() - begin < 10
    assert is_gone(fake_serve.report()["pid"])


def test_interrupt_before_ready_stops_all(serve: Serve, lay: Layout, fake_serve: Any, tmp_path: Path) -> None:
    process = serve(lay(GRAPH), FAKE_MODE="silent")
    pid = fake_serve.report()["pid"]

    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)

    assert (process.returncode, said) == (0, "")
    assert is_gone(pid)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_container_that_dies_early_has_the_word_first(serve: Serve, lay: Layout, tmp_path: Path) -> None:
    process = serve(lay(GRAPH), FAKE_MODE="dies")

    said = process.communicate(timeout=30)

    assert process.returncode == 3
    assert (said[0], said[1].splitlines()[:2]) == ("", ["fake: started", "fake: the model is bad"])
    assert said[1].splitlines()[-1] == "pierhead: the container ended before it was ready, with status 3."
    assert list((tmp_path / "tmp").iterdir()) == []


def test_status_of_a_container_that_ends_by_itself_is_passed_on(
    serve: Serve, lay: Layout, free_port: int
) -> None:
    process = serve(lay(GRAPH), FAKE_MODE="ends")
    read_until(process, "curl")
    with socket.create_connection(("127.0.0.1", free_port)) as connection:
        connection.sendall(b"POST /invocations HTTP/1.0\r\nContent-Length: 0\r\n\r\n")

        process.communicate(timeout=30)

    assert process.returncode == 7


def test_artifact_is_checked_before_anything_starts(
    lay: Layout, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    root = lay("m/saved_model.pb")

    serve_status = main(["serve", str(root), "--port", str(free_port)])
    serve_said = capsys.readouterr().err
    check_status = main(["check", str(root)])

    assert (serve_status, check_status) == (1, 1)
    assert capsys.readouterr().err == serve_said


def test_port_in_use_is_refused(lay: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        status = main(["serve", str(lay(GRAPH)), "--port", str(listener.getsockname()[1])])

    assert status == 1
    assert "is in use by another program" in capsys.readouterr().err


def test_multi_model_mode_is_refused_with_advice(lay: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["serve", str(lay(GRAPH)), "--env", "SAGEMAKER_MULTI_MODEL=true"])

    assert status == 1
    assert "./serve loads many on demand" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "0"],
        ["--port", "x"],
        ["--instances", "0"],
        ["--workers", "-1"],
        ["--env", "A"],
        ["--env", "=A"],
    ],
)
def test_bad_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "artifact", *arguments])

    assert f"argument {arguments[0]}" in capsys.readouterr().err


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])

    assert capsys.readouterr().out.startswith("pierhead 0.")
