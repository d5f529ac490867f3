"""Invocations of every form at a multi-model endpoint, and what log and metrics say of them and of loads."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from artifacts import artifact_with_hooks, stub_model
from multi_model_stack import BODY, RESULT, ModelsStack, refusal
from running_stack import wait_for

JSON = {"Content-Type": "application/json"}
LARGE = 20_000_000
DIGESTING = """
    import hashlib
    import time
    from pathlib import Path


    def handler(data, context):
        body = data.read()
        if context.request_content_type == "text/gate":
            return parts(Path(body.decode())), "text/plain"
        print("received", len(body), flush=True)
        return f"{len(body)} {hashlib.sha256(body).hexdigest()}", "text/plain"


    def parts(gate):
        yield "first "
        while not gate.exists():
            time.sleep(0.01)
        yield "second"
    """


@pytest.fixture(scope="module")
def served(
    endpoint: ModelsStack, half_plus_two: Path, tmp_path_factory: pytest.TempPathFactory
) -> ModelsStack:
    """Return the endpoint with `plain`, which has no hooks, and `own`, which tells what it receives."""
    endpoint.load_new("plain", half_plus_two)
    own = artifact_with_hooks(tmp_path_factory.mktemp("own"), half_plus_two, DIGESTING)
    endpoint.load_new("own", own)
    return endpoint


def pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 1 << 20):
        yield body[start : start + (1 << 20)]


def padded(size: int) -> bytes:
    """Return a request that is as long as is asked for, most of it blanks."""
    return BODY[:-1].encode() + b" " * (size - len(BODY)) + b"}"


@pytest.mark.parametrize("size", [len(BODY), 300_000, LARGE])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_bodies_arrive_whole_however_they_are_framed(served: ModelsStack, size: int, framing: str) -> None:
    body = padded(size)

    def ask(name: str) -> tuple[int, bytes]:
        sent = body if framing == "length" else pieces(body)
        answer = served.send("POST", f"/models/{name}/invoke", sent, JSON)
        return answer.status, answer.body

    digest = f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode()
    assert (200, digest) == ask("own")
    status, answer = ask("plain")
    assert (200, b'{"predictions":[2.5,3.0,4.5]}') == (status, b"".join(answer.split()))


def test_gzip(served: ModelsStack) -> None:
    answer = served.invoke_model("plain", gzip.compress(BODY.encode()), Content_Encoding="gzip")

    assert (200, RESULT) == (answer.status, answer.json())


def test_csv_and_json_lines(served: ModelsStack) -> None:
    csv = served.invoke_model("plain", "1\n2\n5\n", "text/csv", Accept="text/csv")
    lines = served.invoke_model("plain", "1\n2\n5\n", "application/jsonlines", Accept="application/jsonlines")

    assert (200, b"2.5\n3.0\n4.5\n") == (csv.status, csv.body)
    assert (200, ["2.5", "3.0", "4.5"]) == (lines.status, lines.body.decode().split())


def test_numpy_files(served: ModelsStack) -> None:
    file = io.BytesIO()
    np.save(file, np.array([1, 2, 5], np.float32))

    answer = served.invoke_model("plain", file.getvalue(), "application/x-npy", Accept="application/x-npy")

    assert (200, "application/x-npy") == (answer.status, answer.content_type)
    assert [2.5, 3.0, 4.5] == np.load(io.BytesIO(answer.body)).tolist()


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status"),
    [
        (b'{"instances": [1,', "application/json", "*/*", 400),
        (b"", "application/json", "*/*", 400),
        (b"\x00\xff\x17", "application/x-unheard-of", "*/*", 415),
        (BODY.encode(), "application/json", "image/png", 406),
        (b'{"instances": ["text"]}', "application/json", "*/*", 400),
    ],
)
def test_refusals_are_those_of_a_container_with_this_model_alone(
    served: ModelsStack, body: bytes, content_type: str, accept: str, status: int
) -> None:
    assert status == refusal(served.invoke_model("plain", body, content_type, Accept=accept))[0]


def test_an_answer_in_parts_is_passed_on_part_by_part(served: ModelsStack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    with closing(connection):
        connection.request("POST", "/models/own/invoke", str(gate).encode(), {"Content-Type": "text/gate"})
        response = connection.getresponse()
        first = response.read1()
        gate.touch()

        assert (200, b"first ") == (response.status, first)
        assert b"second" == response.read()


def test_log_lines_name_the_model_and_are_found_by_the_request_id(served: ModelsStack) -> None:
    headers = {"X-Amzn-SageMaker-Target-Model": "team/own.tar.gz", "X-Request-Id": "mine"}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    with closing(connection):
        connection.request("POST", "/models/own/invoke?secret=1", b"12345", headers)
        response = connection.getresponse()
        response.read()
    number = response.headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{32}", number)

    def lines() -> list[str]:
        return [line for line in served.log.splitlines() if number in line]

    wait_for(lambda: len(lines()) == 2, 5, lambda: served.log)
    access = next(line for line in lines() if " nginx [" in line)
    printed = next(line for line in lines() if " nginx [" not in line)
    assert f" INFO nginx [{number}]: POST /models/own/invoke 200 " in access
    assert 'target_model="team/own.tar.gz"' in access
    assert "secret" not in access
    assert printed.endswith(f" INFO own/handler-workers [{number}]: received 5")


def test_loads_and_unloads_are_logged_and_pings_are_not(served: ModelsStack, half_plus_two: Path) -> None:
    served.load_new("logged", half_plus_two)
    assert 200 == served.unload("logged").status
    assert 200 == served.ping()

    wait_for(lambda: "DELETE /models/logged 200" in served.log, 5, lambda: served.log)
    assert re.search(r" INFO supervisor: model loaded name=logged seconds=[\d.]+$", served.log, re.MULTILINE)
    assert " INFO supervisor: model unloaded name=logged" in served.log
    assert re.search(r" INFO nginx \[[0-9a-f]{32}\]: POST /models 200 ", served.log)
    assert "GET /ping" not in served.log


def metrics(stack: ModelsStack) -> dict[str, float]:
    answer = stack.request("GET", "/metrics")
    assert 200 == answer.status
    lines = [line for line in answer.body.decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_tell_of_models_and_of_nothing_that_is_gone(served: ModelsStack, half_plus_two: Path) -> None:
    invoked, listed = (
        f'pierhead_http_requests_total{{route="{route}",status="200"}}' for route in ("invoke", "models")
    )
    missing = 'pierhead_http_requests_total{route="invoke",status="404"}'
    before = metrics(served)
    served.load_new("counted", half_plus_two)
    assert 404 == refusal(served.load("missing"))[0]
    for number in range(10):
        assert 200 == served.invoke_model("counted").status
        assert 404 == served.invoke_model(f"name-{number}").status
    served.listed()

    def is_counted() -> bool:
        now = metrics(served)
        return (
            now[invoked] >= before.get(invoked, 0) + 10
            and now[missing] >= before.get(missing, 0) + 10
            and now[listed] >= before.get(listed, 0) + 2
        )

    wait_for(is_counted, 5, lambda: str(metrics(served)))
    now = metrics(served)
    up = 'pierhead_process_up{process="counted/model-server-1"}'
    assert (before["pierhead_models_loaded"] + 1, 1.0) == (now["pierhead_models_loaded"], now[up])
    loads = {
        result: now.get(name, 0) - before.get(name, 0)
        for result in ("loaded", "failed", "unloaded")
        for name in [f'pierhead_model_loads_total{{result="{result}"}}']
    }
    assert {"loaded": 1, "failed": 1, "unloaded": 0} == loads
    assert [] == [name for name in now if "name-" in name]

    assert 200 == served.unload("counted").status
    gone = metrics(served)
    assert before["pierhead_models_loaded"] == gone["pierhead_models_loaded"]
    assert [] == [name for name in gone if "counted" in name]


def test_invocations_from_many_clients_all_arrive(served: ModelsStack) -> None:
    wrong: list[object] = []

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        with closing(connection):
            for turn in range(25):
                value = number * 25 + turn
                body = f'{{"instances": [{value}.0]}}'
                connection.request("POST", "/models/plain/invoke", body, JSON)
                answer = connection.getresponse().read()
                if b"".join(answer.split()) != f'{{"predictions":[{value / 2 + 2}]}}'.encode():
                    wrong.append((value, answer))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for each in clients:
        each.start()
    for each in clients:
        each.join(60)

    assert [] == wrong


def test_another_artifact_of_the_same_model_is_a_model_of_its_own(
    served: ModelsStack, tmp_path: Path
) -> None:
    if served.stub is None:
        pytest.skip("the stub records what it is asked for")
    served.load_new("twin", stub_model(tmp_path))
    served.stub.forget()

    assert RESULT == served.invoke_model("twin").json()

    (asked,) = served.stub.predictions()
    assert asked.pid == served.pid_of("twin/model-server-1")
    assert 200 == served.unload("twin").status
