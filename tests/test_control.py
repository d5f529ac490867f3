"""The messages between the programs of the stack, as bytes, and the plan as a file."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pierhead.control import (
    Accepted,
    Forked,
    ForkServer,
    Message,
    ModelPlan,
    NurseryReady,
    ServerAddress,
    ServicePlan,
    WorkerGone,
    WorkerReady,
    decode,
    encode,
    read_plan,
    send,
    write_plan,
)
from pierhead.errors import ControlError
from pierhead.supervisor.doors import ControlDoor
from pierhead.supervisor.events import FromWorker

PLAN = ServicePlan(
    settings={"SAGEMAKER_BATCH": "false"},
    socket="/run/workers.sock",
    control_socket="/run/control.sock",
    servers=(ServerAddress(9000, 8501), ServerAddress(9001, 8502)),
    models=(ModelPlan("ä 'b'", (1, 2**63 - 1)), ModelPlan("c", (7,))),
    default_model="c",
    code="/opt/ml/model/code",
    hooks="/opt/ml/model/code/inference.py",
)
PIDS = st.integers(min_value=1, max_value=2**22)
TEXTS = st.text()
MESSAGES = st.one_of(
    st.builds(WorkerReady, PIDS),
    st.builds(WorkerGone, PIDS),
    st.just(Accepted()),
    st.just(NurseryReady()),
    st.builds(ForkServer, TEXTS, st.lists(TEXTS).map(tuple)),
    st.builds(Forked, TEXTS, PIDS),
)


@pytest.fixture
def socket_path() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    yield folder / "control.sock"
    shutil.rmtree(folder)


@given(MESSAGES)
def test_message_survives_the_wire(message: Message) -> None:
    line = encode(message)

    assert message == decode(line)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"hello\n",
        b"{}\n",
        b"[]\n",
        b"7\n",
        b"null\n",
        b'"WorkerReady"\n',
        b'{"message": "Unknown"}\n',
        b'{"message": null}\n',
        b'{"message": []}\n',
        b'{"message": "WorkerReady"}\n',
        b'{"message": "WorkerReady", "pid": 1, "more": 2}\n',
        b'{"message": "Accepted", "pid": 1}\n',
        b'{"message": "WorkerReady", "pid": 1',
        b"\xff\xfe\n",
        b"GET / HTTP/1.1\r\n",
        b"[" * 100_000,
    ],
)
def test_junk_is_refused(line: bytes) -> None:
    with pytest.raises(ControlError, match="not a control message"):
        decode(line)


def test_refusal_shows_the_start_of_the_junk_alone() -> None:
    with pytest.raises(ControlError) as refusal:
        decode(b"x" * 10_000)

    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("code", [None, "/opt/ml/model/code"])
def test_plan_survives_the_file(code: str | None, tmp_path: Path) -> None:
    plan = ServicePlan(**{**PLAN.__dict__, "code": code, "hooks": code and f"{code}/inference.py"})
    path = tmp_path / "workers.json"

    write_plan(plan, path)

    assert plan == read_plan(path)


def test_plan_replaces_an_older_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    path.write_text("an older plan")

    write_plan(PLAN, path)

    assert read_plan(path) == PLAN
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"servers": 7, "models": []}'])
def test_file_that_holds_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    path.write_text(text)

    with pytest.raises(ControlError, match="holds no plan"):
        read_plan(path)


def test_missing_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="holds no plan"):
        read_plan(tmp_path / "workers.json")


def test_message_that_is_sent_is_reported_and_accepted(socket_path: Path) -> None:
    reports: SimpleQueue[FromWorker] = SimpleQueue()
    door = ControlDoor(socket_path, reports.put)
    door.open()
    try:
        answer = send(str(socket_path), WorkerReady(17))
    finally:
        door.close()

    assert Accepted() == answer
    assert FromWorker(WorkerReady(17)) == reports.get(timeout=5)


def test_sending_to_nobody_fails_quickly(socket_path: Path) -> None:
    before = time.monotonic()

    with pytest.raises(ControlError, match="the supervisor did not answer"):
        send(str(socket_path), WorkerReady(17))

    assert time.monotonic() - before < 1.0
