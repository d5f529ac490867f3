"""Start, death and stop of the stack's processes, as seen from outside."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from running_stack import RunningStack, StartStack, descendants, private_megabytes, wait_for

BODY = '{"instances": [1.0, 2.0, 5.0]}'
SLOW = """
    import time


    def handler(data, context):
        print("handler called", flush=True)
        time.sleep(float(data.read()))
        return '"done"', "application/json"
    """


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z"
    except OSError:
        return False


def answers(stack: RunningStack) -> bool:
    try:
        return stack.ping() == 200 and stack.invoke(BODY).status == 200
    except OSError:
        return False


@pytest.mark.parametrize("name", ["model-server-1", "model-server-2", "handler-workers", "nginx", "nursery"])
def test_a_killed_process_comes_back_and_requests_succeed(
    start_stack: StartStack, half_plus_two: Path, name: str
) -> None:
    stack = start_stack(half_plus_two, SAGEMAKER_TFS_INSTANCE_COUNT="2")
    pid = stack.pid_of(name)

    os.kill(pid, signal.SIGKILL)

    wait_for(lambda: not is_alive(pid), 5)
    wait_for(lambda: stack.pid_of(name) != pid, 30, lambda: stack.log)
    wait_for(lambda: answers(stack), 10, lambda: stack.log)
    assert stack.stop() == 0


def test_ping_is_503_while_the_model_server_is_away(start_stack: StartStack, half_plus_two: Path) -> None:
    stack = start_stack(half_plus_two)
    nursery = stack.pid_of("nursery")

    # Without its nursery, which takes seconds to come back, the model server stays away long enough to see.
    os.kill(nursery, signal.SIGKILL)
    os.kill(stack.pid_of("model-server-1"), signal.SIGKILL)

    wait_for(lambda: stack.ping() == 503, 2, lambda: stack.log)
    answer = stack.request("GET", "/ping")
    if answer.status == 503:
        assert "model-server-1" in answer.json()["error"]
    lost = stack.invoke(BODY)
    assert lost.status in (200, 502)
    assert lost.content_type == "application/json"
    wait_for(lambda: answers(stack), 30, lambda: stack.log)


def test_a_killed_handler_worker_comes_back(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    stack = start_stack(artifact_with_hooks(tmp_path, half_plus_two, SLOW))
    (worker,) = descendants(stack.pid_of("handler-workers"))

    os.kill(worker, signal.SIGKILL)

    wait_for(lambda: stack.ping() == 200 and stack.invoke("0").status == 200, 20, lambda: stack.log)
    assert stack.stop() == 0


def test_requests_in_flight_finish_and_nothing_is_left(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    stack = start_stack(artifact_with_hooks(tmp_path, half_plus_two, SLOW))
    family = list(descendants(stack.process.pid))
    answers: list[int] = []
    clients = [threading.Thread(target=lambda: answers.append(stack.invoke("1.5").status)) for _ in range(4)]
    for client in clients:
        client.start()
    wait_for(lambda: stack.log.count("handler called") == 4, 10, lambda: stack.log)

    status = stack.stop()

    for client in clients:
        client.join(10)
    assert answers == [200, 200, 200, 200]
    assert status == 0, stack.log
    assert [pid for pid in family if is_alive(pid)] == []
    assert list(stack.run_folder.iterdir()) == []
    assert "Traceback" not in stack.log


def test_sigterm_during_the_start_ends_at_once(start_stack: StartStack, half_plus_two: Path) -> None:
    stack = start_stack(half_plus_two, wait=False)
    wait_for(lambda: "model name=half_plus_two" in stack.log, 20)

    assert stack.stop(seconds=3) == 0


def test_nothing_outlives_a_supervisor_that_is_killed(start_stack: StartStack, half_plus_two: Path) -> None:
    stack = start_stack(half_plus_two)
    family = list(descendants(stack.process.pid))

    stack.process.kill()

    wait_for(lambda: not any(is_alive(pid) for pid in family), 10)


def test_only_nginx_listens_off_loopback(start_stack: StartStack, half_plus_two: Path) -> None:
    stack = start_stack(half_plus_two, SAGEMAKER_TFS_INSTANCE_COUNT="2")

    listening = {address for pid in descendants(stack.process.pid) for address in listening_sockets(pid)}

    assert {port for host, port in listening if not host.startswith("127.")} == {stack.port}
    assert {port for host, port in listening if host.startswith("127.")} == set(stack.ports[:4])


def listening_sockets(pid: int) -> set[tuple[str, int]]:
    """Return address and port of each TCP socket that a process listens on, from /proc."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.update(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
        except OSError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    rows6 = [line.split() for line in Path(f"/proc/{pid}/net/tcp6").read_text().splitlines()[1:]]
    found = {_address(row[1]) for row in rows if row[3] == "0A" and row[9] in inodes}
    return found | {_address6(row[1]) for row in rows6 if row[3] == "0A" and row[9] in inodes}


def _address(text: str) -> tuple[str, int]:
    host, port = text.split(":")
    return socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)


def test_processes_own_little_memory(
    start_stack: StartStack,
    half_plus_two: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    stack = start_stack(artifact_with_hooks(tmp_path, half_plus_two, SLOW), SAGEMAKER_TFS_INSTANCE_COUNT="2")
    (worker,) = descendants(stack.pid_of("handler-workers"))
    stack.invoke("0")
    figures = {
        "supervisor": private_megabytes(stack.process.pid),
        "worker": private_megabytes(worker),
        "second model server": private_megabytes(stack.pid_of("model-server-2")),
    }
    record_property("megabytes", figures)

    assert figures["worker"] < 80, figures
    assert figures["second model server"] < 30, figures
    assert figures["supervisor"] < 40, figures


def _address6(text: str) -> tuple[str, int]:
    """Return an IPv6 address; one that maps an IPv4 address, as grpcio listens on, is returned as that."""
    mapped = text.removeprefix("0000000000000000FFFF0000")
    return _address(mapped) if mapped != text else ("::", int(text[-4:], 16))
