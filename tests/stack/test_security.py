"""Hostile clients against the whole stack, which has no rights that it does not need."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from client import HEAD, connected, content_length, read_answer
from running_stack import CHECKOUT, Answer, RunningStack, descendants
from stub_binary import StubBinary

RECORDING = """
    import json
    from pathlib import Path

    SEEN = Path(__file__).with_name("seen")


    def handler(data, context):
        record = {"body": data.read().decode("latin-1"), "headers": dict(context.request_headers)}
        with SEEN.open("a") as seen:
            seen.write(json.dumps(record) + "\\n")
        return json.dumps(record), "application/json"
    """
ATTRIBUTES = b"X-Amzn-SageMaker-Custom-Attributes"
BODY = b'{"instances": [1.0]}'
INNER = content_length(b'{"instances": [7.0]}')


class Witnessed:
    """A stack, and how many invocations have come out behind nginx."""

    def __init__(self, stack: RunningStack, seen: Path | None) -> None:
        self.stack = stack
        self._seen = seen

    def count(self) -> int:
        """Return how many requests the hook, or the model server, has been given."""
        if self._seen is not None:
            return len(self._seen.read_text().splitlines()) if self._seen.exists() else 0
        connection = http.client.HTTPConnection("127.0.0.1", self.stack.ports[1], timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/monitoring/prometheus/metrics")
            page = connection.getresponse().read().decode()
        counts = re.findall(r"^:tensorflow:serving:request_count\{.*\} (\d+)$", page, re.MULTILINE)
        return sum(map(int, counts))


@pytest.fixture(scope="module", params=["embedded", "gunicorn"])
def witnessed(
    request: pytest.FixtureRequest,
    half_plus_two: Path,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Witnessed]:
    if request.param == "embedded":
        with RunningStack(half_plus_two, free_ports(9)) as stack:
            stack.wait_until_ready()
            yield Witnessed(stack, None)
        return
    folder = tmp_path_factory.mktemp("recording")
    artifact = artifact_with_hooks(folder, half_plus_two, RECORDING)
    stub = StubBinary(folder / "stub")
    with RunningStack(artifact, free_ports(9), **stub.environ()) as stack:
        stack.wait_until_ready()
        yield Witnessed(stack, artifact / "code" / "seen")


def all_answers(stack: RunningStack, request: bytes, *, awaited: int = 1) -> list[Answer]:
    """Send bytes, and return the answers that are awaited and those that come soon after them."""
    answers: list[Answer] = []
    with connected(stack) as connection:
        connection.sendall(request)
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                answers.append(read_answer(connection))
                if len(answers) >= awaited:
                    connection.settimeout(0.3)
    return answers


def both_lengths(*headers: bytes, body: bytes) -> bytes:
    """Return a request with a Content-Length that spans the body, and further headers."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return HEAD + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


ENDED = b"0\r\n\r\n" + INNER
SMUGGLED = {
    "CL.TE": both_lengths(b"Transfer-Encoding: chunked", body=ENDED),
    "TE.CL": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n" + INNER + b"0\r\n\r\n",
    "blank before colon": both_lengths(b"Transfer-Encoding : chunked", body=ENDED),
    "unknown encoding": both_lengths(b"Transfer-Encoding: xchunked", body=ENDED),
    "two encodings": both_lengths(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=ENDED),
    "list of encodings": both_lengths(b"Transfer-Encoding: gzip, chunked", body=ENDED),
    "vertical tab": both_lengths(b"Transfer-Encoding:\x0bchunked", body=ENDED),
    "quoted": both_lengths(b'Transfer-Encoding: "chunked"', body=ENDED),
    "folded": both_lengths(b"Transfer-Encoding:\r\n chunked", body=ENDED),
    "bare LF": both_lengths(b"X: y\nTransfer-Encoding: chunked", body=ENDED),
    "bare CR": both_lengths(b"X: y\rTransfer-Encoding: chunked", body=ENDED),
    "underscore": both_lengths(b"Transfer_Encoding: chunked", body=ENDED),
    "case": both_lengths(b"tRANSFER-eNCODING: CHUNKED", body=ENDED),
    "two lengths": HEAD + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(INNER) + INNER,
    "list of lengths": HEAD + b"Content-Length: 0, %d\r\n\r\n" % len(INNER) + INNER,
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n" + INNER,
    "plus": HEAD + b"Content-Length: +0\r\n\r\n" + INNER,
    "hexadecimal": HEAD + b"Content-Length: 0x0\r\n\r\n" + INNER,
    "length beyond 64 bits": HEAD + b"Content-Length: 18446744073709551616\r\n\r\n" + INNER,
    "chunk beyond 64 bits": HEAD + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + ENDED,
    "negative chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + ENDED,
    "chunk with 0x": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n" + ENDED,
    "chunk longer than said": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n" + ENDED,
    "HTTP/1.0 chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + ENDED).replace(b"/1.1", b"/1.0", 1),
}


@pytest.mark.parametrize("case", SMUGGLED)
def test_one_request_never_becomes_two(witnessed: Witnessed, case: str) -> None:
    before = witnessed.count()

    answers = all_answers(witnessed.stack, SMUGGLED[case])

    assert witnessed.count() - before <= min(1, len(answers))
    assert [each.content_type for each in answers] == ["application/json"] * len(answers)


@pytest.mark.parametrize(
    "framing",
    [
        b"Transfer-Encoding: chunked\r\n\r\n14;a=b\r\n" + BODY + b"\r\n0\r\n\r\n",
        b'Transfer-Encoding: chunked\r\n\r\n14 ; a="b\\"c"\r\n' + BODY + b"\r\n0;x\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0014\r\n" + BODY + b"\r\n0\r\nTrailer: x\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n13\r\n" + BODY[1:] + b"\r\n0\r\n\r\n",
    ],
)
def test_chunks_arrive_as_one_body(witnessed: Witnessed, framing: bytes) -> None:
    before = witnessed.count()

    answers = all_answers(witnessed.stack, HEAD + framing)

    assert [each.status for each in answers] in ([200], [400])
    assert witnessed.count() - before == len([each for each in answers if each.status == 200])


def test_pipelined_requests_are_answered_one_by_one(witnessed: Witnessed) -> None:
    before = witnessed.count()
    bodies = [b'{"instances": [%d.0]}' % number for number in (2, 4, 6)]

    answers = all_answers(witnessed.stack, b"".join(map(content_length, bodies)), awaited=3)

    assert [each.status for each in answers] == [200] * 3
    assert witnessed.count() - before == 3
    for body, answer, result in zip(bodies, answers, (3.0, 4.0, 5.0), strict=True):
        record = answer.json()
        assert record.get("predictions") == [result] or record["body"] == body.decode()


@pytest.mark.parametrize(
    "line", [b"X: a\rb", b"X: a\x00b", b"X: a\r\n folded", b"X\x00: a", b"X y: a", b": a", b"no colon"]
)
def test_a_header_that_could_be_read_in_two_ways_is_refused_or_dropped(
    witnessed: Witnessed, line: bytes
) -> None:
    (answer,) = all_answers(witnessed.stack, both_lengths(line, body=BODY))[:1]

    assert answer.status in (200, 400)
    assert answer.content_type == "application/json"
    if answer.status == 200 and "headers" in answer.json():
        assert "X" not in answer.json()["headers"]


@pytest.mark.parametrize(
    "lines",
    [
        [b"X-Forwarded-Proto: https", b"X-Forwarded-Ssl: off", b"X-Forwarded-Protocol: http"],
        [b"X-%d: y" % number for number in range(800)],
        [b"X-Long: " + b"y" * 8000] * 3,
        [b"Connection: close, " + ATTRIBUTES, b"Upgrade: websocket", b"TE: trailers", b"Keep-Alive: 1"],
        [b"Script-Name: /x", b"SCRIPT_NAME: /x", b"X_Y: z", b"Proxy: http://x"],
        [b"X-Accel-Redirect: /errors/500", b"X-Pierhead-Default-Accept: text/csv", b"X-Request-Id: mine"],
        [b"Expect: 100-continue"],
    ],
)
def test_headers_that_steer_other_programs_steer_nothing_here(
    witnessed: Witnessed, lines: list[bytes]
) -> None:
    answers = [
        each for each in all_answers(witnessed.stack, both_lengths(*lines, body=BODY)) if each.status != 100
    ]

    assert [each.status for each in answers] == [200], answers
    assert answers[0].content_type == "application/json"
    told = {name.lower(): value for name, value in answers[0].json().get("headers", {}).items()}
    for dropped in ("x_y", "script_name", "upgrade", "te", "keep-alive", "connection", "expect"):
        assert told.get(dropped) in (None, "", "close")
    assert told.get("x-pierhead-default-accept", "application/json") == "application/json"
    assert told.get("x-request-id") != "mine"


def test_attributes_named_in_connection_still_count(witnessed: Witnessed) -> None:
    lines = (ATTRIBUTES + b": tfs-model-name=nope", b"Connection: close, " + ATTRIBUTES)

    (answer,) = all_answers(witnessed.stack, both_lengths(*lines, body=BODY))

    assert answer.status == 404


def test_no_answer_tells_of_the_inside(witnessed: Witnessed) -> None:
    requests = (
        both_lengths(ATTRIBUTES + b": tfs-method=../../etc", body=BODY),
        both_lengths(ATTRIBUTES + b": tfs-model-name=nope", body=BODY),
        content_length(b'{"instances": ["x"]}'),
        content_length(b"\xff\xfe"),
        b"GET /errors/500 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /streamed HTTP/1.1\r\nHost: x\r\n\r\n",
        HEAD.replace(b"/invocations", b"/v1/models/half_plus_two:predict") + b"Content-Length: 0\r\n\r\n",
    )

    for request in requests:
        for answer in all_answers(witnessed.stack, request):
            assert answer.content_type == "application/json"
            text = answer.body.decode()
            assert not re.search(r"127\.0\.0\.1|Traceback|\.py\b|\.sock|/run/|/tmp/|<html", text), text


@pytest.fixture(scope="module")
def one_blocking_worker(
    half_plus_two: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("blocking")
    artifact = artifact_with_hooks(folder, half_plus_two, RECORDING)
    environ = StubBinary(folder / "stub").environ(SAGEMAKER_GUNICORN_WORKER_CLASS="sync")
    with RunningStack(artifact, free_ports(9), **environ) as stack:
        stack.wait_until_ready()
        yield stack


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"POST /invoc",
        HEAD,
        HEAD + b"Content-Length: 1000\r\n\r\n" + b"x" * 500,
        HEAD + b"Content-Length: 9000000\r\n\r\n" + b"x" * 500,
    ],
)
def test_300_stalled_clients_starve_nobody(one_blocking_worker: RunningStack, half: bytes) -> None:
    stack = one_blocking_worker
    with contextlib.ExitStack() as stalled:
        for _ in range(300):
            stalled.enter_context(connected(stack)).sendall(half)
        started = time.monotonic()
        statuses = [stack.invoke(BODY).status for _ in range(5)] + [stack.ping()]
        seconds = time.monotonic() - started

    assert statuses == [200] * 6
    assert seconds < 5


def test_slow_uploads_do_not_keep_a_gevent_worker_from_others(witnessed: Witnessed) -> None:
    with contextlib.ExitStack() as stalled:
        for _ in range(100):
            connection = stalled.enter_context(connected(witnessed.stack))
            connection.sendall(HEAD + b"Content-Length: 9000000\r\n\r\n" + b" " * 100_000)
        started = time.monotonic()
        statuses = [witnessed.stack.invoke(BODY).status for _ in range(5)]
        seconds = time.monotonic() - started

    assert statuses == [200] * 5
    assert seconds < 5


# Where the interpreter lies, and who may read it, is not what is tested.
READING = "+dac_read_search"


class WithoutRights(RunningStack):
    """A stack of a user that owns nothing, on a file system that is read-only but for the run folder."""

    USER = 1234

    def _command(self) -> list[str]:
        script = (
            'mkdir "$PIERHEAD_RUN_DIR"'
            f' && mount -t tmpfs -o size=4m,uid={self.USER},mode=755 run "$PIERHEAD_RUN_DIR"'
            " && mount --bind / / 2>/dev/null; mount -o remount,ro,bind /"
            ' && ! touch "$PIERHEAD_RUN_DIR/../x" 2>/dev/null'
            f" && exec setpriv --reuid={self.USER} --regid={self.USER} --clear-groups --no-new-privs"
            f' --bounding-set=-all,{READING} --inh-caps=-all,{READING} --ambient-caps=-all,{READING} "$0"'
        )
        return ["unshare", "--mount", "sh", "-c", script, str(CHECKOUT / "serve")]

    @property
    def run_folder(self) -> Path:
        """Return the run folder as the stack's own processes see it."""
        if not hasattr(self, "process"):
            return super().run_folder
        return Path(f"/proc/{self.process.pid}/root{super().run_folder}")


def can_drop_rights() -> bool:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(params=["direct", "hooks"])
def unprivileged(
    request: pytest.FixtureRequest, half_plus_two: Path, free_ports: Callable[[int], int], short_folder: Path
) -> Iterator[RunningStack]:
    if not can_drop_rights():
        pytest.skip("only root may become somebody else, and mount, where the kernel lets it")
    artifact = short_folder / "artifact"
    shutil.copytree(half_plus_two, artifact)
    if request.param == "hooks":
        artifact = artifact_with_hooks(short_folder / "hooks", artifact, RECORDING_NOTHING)
    subprocess.run(["chmod", "-R", "a+rX", str(short_folder)], check=True)
    with WithoutRights(artifact, free_ports(9)) as stack:
        stack.wait_until_ready()
        yield stack


RECORDING_NOTHING = """
    import os


    def handler(data, context):
        return str(os.getuid()), "text/plain"
    """


@pytest.fixture
def short_folder() -> Iterator[Path]:
    folder = Path("/tmp") / f"ph-unprivileged-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def test_no_right_is_needed_but_to_write_the_run_folder(unprivileged: RunningStack) -> None:
    small = unprivileged.invoke(BODY)
    large = unprivileged.invoke(b"{" + b" " * 20_000_000 + BODY[1:])

    assert small.status == 200, unprivileged.log
    assert large.status == 200, unprivileged.log
    assert unprivileged.ping() == 200
    users = {os.stat(f"/proc/{pid}").st_uid for pid in descendants(unprivileged.process.pid)}
    assert users == {WithoutRights.USER}
    assert [path for path in made_files(unprivileged.run_folder) if path.stat().st_mode & 0o022] == []
    assert unprivileged.stop() == 0, unprivileged.log
    # Standard output is a file of whoever runs the tests: nginx cannot open it.
    assert "POST /invocations 200" in unprivileged.log
    assert "Permission denied" not in unprivileged.log
    assert "Traceback" not in unprivileged.log


def made_files(folder: Path) -> Iterator[Path]:
    """Yield what the stack has made, but for its sockets: the folder decides who may connect to those."""
    for path in folder.rglob("*"):
        if not stat.S_ISSOCK(path.stat().st_mode):
            yield path


def test_the_listening_socket_takes_a_burst(one_blocking_worker: RunningStack) -> None:
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(socket.socket()) for _ in range(300)]
        for connection in connections:
            connection.settimeout(20)
            connection.connect(("127.0.0.1", one_blocking_worker.port))
        for connection in connections:
            connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        statuses = {read_answer(connection, "GET").status for connection in connections}

    assert statuses == {200}
