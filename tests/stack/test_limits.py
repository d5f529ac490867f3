"""Bodies and answers of up to 177 MB through the whole stack: complete, in bounded memory, and in no file."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client import HEAD, connected, content_length, in_chunks, read_answer
from field_stacks import HANDLER, STUB, FieldStack
from running_stack import CHECKOUT, RunningStack, descendants
from stub_binary import StubBinary

MEGABYTE = 1_000_000
FIELD_HOOKS = """
    def input_handler(data, context):
        body = data.read()
        print(f"hook read {len(body)}", flush=True)
        return body


    def output_handler(response, context):
        if response.status_code != 200:
            raise ValueError(response.text)
        megabytes = context.custom_attributes.partition("reply_mb=")[2]
        if megabytes:
            return b"x" * (int(megabytes) * 1_000_000), "text/plain"
        return response.content, "application/json"
    """
ATTRIBUTES = b"X-Amzn-SageMaker-Custom-Attributes"


def padded(size: int) -> bytes:
    """Return a predict request of that many bytes, cheap for whoever reads it."""
    start, end = b"{", b'"instances": [1.0]}'
    return start + b" " * (size - len(start) - len(end)) + end


def spooled(stack: RunningStack) -> list[Path]:
    """Return what nginx holds in files of bodies and answers."""
    folder = stack.run_folder / "nginx"
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "nginx.pid"]


@pytest.mark.parametrize(
    ("megabytes", "framed"),
    [(7, content_length), (20, in_chunks), (50, content_length), (177, in_chunks)],
)
def test_a_large_body_is_answered(
    field: FieldStack, megabytes: int, framed: Callable[[bytes], bytes]
) -> None:
    request = framed(padded(megabytes * MEGABYTE))
    with connected(field.stack) as connection:
        connection.sendall(request)
        answer = read_answer(connection)

    assert answer.status == 200, answer.body
    assert answer.json() == {"predictions": [2.5]}
    assert spooled(field.stack) == []


def test_a_client_that_waits_for_the_go_ahead_gets_it(field: FieldStack) -> None:
    body = padded(20 * MEGABYTE)
    with connected(field.stack) as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)

        assert read_answer(connection).json() == {"predictions": [2.5]}


def test_many_numbers_come_back_complete(field: FieldStack) -> None:
    values = [float(number % 1000) for number in range(200_000)]

    answer = field.invoke(json.dumps({"instances": values}))

    assert answer.status == 200
    assert answer.json() == {"predictions": [value / 2 + 2 for value in values]}


def test_a_large_answer_is_complete_however_slowly_it_is_read(field: FieldStack) -> None:
    if field.path == HANDLER:
        request = HEAD + ATTRIBUTES + b": reply_mb=150\r\n" + content_length(padded(100))[len(HEAD) :]
        expected = b"x" * 150_000_000
    elif field.server == STUB:
        request = content_length(b'{"instances": ["REPLY_MB=150"]}')
        expected = json.dumps({"predictions": ["x" * (150 << 20)]}).encode()
    else:
        pytest.skip("this model answers no more than it is asked")
    with connected(field.stack) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        first = response.read(1 << 20)
        files = spooled(field.stack)
        body = first + response.read()

    assert response.status == 200
    assert len(expected) == len(body)
    assert hashlib.sha256(expected).digest() == hashlib.sha256(body).digest()
    assert files == []


@pytest.mark.parametrize("megabytes", [3, 30])
@pytest.mark.parametrize("framed", [content_length, in_chunks])
def test_a_client_that_goes_away_leaves_nothing(
    field: FieldStack, megabytes: int, framed: Callable[[bytes], bytes]
) -> None:
    family = set(descendants(field.stack.process.pid))
    reads = len(re.findall("hook read", field.stack.log))
    request = framed(padded(megabytes * MEGABYTE))
    with connected(field.stack) as connection:
        connection.sendall(request[: len(request) // 2])

    answer = field.invoke(padded(100))

    assert answer.json() == {"predictions": [2.5]}
    assert spooled(field.stack) == []
    assert family == set(descendants(field.stack.process.pid))
    assert len(re.findall("hook read", field.stack.log)) == reads + (field.path == HANDLER)
    assert "Traceback" not in field.stack.log


def test_memory_for_a_large_body_is_bounded(
    field: FieldStack, record_property: Callable[[str, object], None]
) -> None:
    body = padded(30 * MEGABYTE)
    family = [field.stack.process.pid, *descendants(field.stack.process.pid)]
    try:
        before = {pid: start_peak(pid) for pid in family}
    except OSError:
        pytest.skip("peaks of memory cannot be set back here")
    with connected(field.stack) as connection:
        connection.sendall(content_length(body))
        assert read_answer(connection).status == 200

    growth = {pid: peak(pid) - before[pid] for pid in family}
    record_property("megabytes", growth)
    assert sum(growth.values()) < 4 * 30, growth


def start_peak(pid: int) -> float:
    """Begin to note a process's peak of memory anew; return where it starts, in MB."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def peak(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1000


class OnSmallDisk(RunningStack):
    """A stack whose run folder is a file system of 2 MB, and whose /tmp is another."""

    def _command(self) -> list[str]:
        mounts = (
            'mkdir -p "$PIERHEAD_RUN_DIR" && mount -t tmpfs -o size=2m,mode=711 run "$PIERHEAD_RUN_DIR"'
            ' && exec "$0"'
        )
        return ["unshare", "--mount", "sh", "-c", mounts, str(CHECKOUT / "serve")]


def can_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(params=["gevent", "sync"])
def small_disk(
    request: pytest.FixtureRequest, half_plus_two: Path, free_ports: Callable[[int], int], stub: StubBinary
) -> Iterator[RunningStack]:
    if not can_mount():
        pytest.skip("a file system can be mounted only by root, where the kernel lets it")
    environ = stub.environ(SAGEMAKER_GUNICORN_WORKER_CLASS=request.param)
    with OnSmallDisk(half_plus_two, free_ports(9), **environ) as stack:
        stack.wait_until_ready()
        yield stack


def test_a_run_folder_of_two_megabytes_is_enough(small_disk: RunningStack) -> None:
    for framed in (content_length, in_chunks):
        with connected(small_disk) as connection:
            connection.sendall(framed(padded(70 * MEGABYTE)))

            assert read_answer(connection).json() == {"predictions": [2.5]}
    answer = small_disk.invoke('{"instances": ["REPLY_MB=20"]}')

    assert answer.status == 200
    assert len(answer.body) > 20 << 20
