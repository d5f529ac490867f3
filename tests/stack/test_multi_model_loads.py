"""Loads and unloads at the same time as others, and as requests (C23): none waits for what is not its own."""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks, stub_model
from field_stacks import EMBEDDED, STUB
from multi_model_stack import BODY, RESULT, ModelsStack, begin, description, refusal
from running_stack import Answer, wait_for

ENDPOINTS = ((EMBEDDED, 1), (STUB, 4))
WAITING_AT_IMPORT = """
    import time
    from pathlib import Path

    from pierhead.hooks import read_request as input_handler
    from pierhead.hooks import write_answer as output_handler

    while not Path({gate!r}).exists():
        time.sleep(0.01)
    """
WAITING_IN_REQUEST = """
    import time
    from pathlib import Path


    def handler(data, context):
        gate = Path(data.read().decode())
        gate.with_name("arrived").touch()
        while not gate.exists():
            time.sleep(0.01)
        return "answered", "text/plain"
    """
Gated = Callable[[Path], Path]


@pytest.fixture
def gated(models: ModelsStack, half_plus_two: Path, tmp_path: Path) -> Gated:
    """Return a function that makes a model whose load goes on when there is something at a path."""

    def make(gate: Path) -> Path:
        if models.stub is not None:
            return stub_model(tmp_path / "gated", READY_WHEN=str(gate))
        text = WAITING_AT_IMPORT.format(gate=str(gate))
        return artifact_with_hooks(tmp_path, half_plus_two, text)

    return make


def is_under_way(models: ModelsStack, name: str) -> bool:
    """Return whether a load has come so far that it waits for its gate."""
    waits = "STUB: " if models.stub is not None else "is ready pid="
    return f"{name}/model-server-1" in models.log and waits in models.log.rpartition(f"name={name} ")[2]


def begin_gated(models: ModelsStack, name: str, gated: Gated, gate: Path) -> Callable[[], Answer]:
    """Begin a load that waits for a gate, and return how to wait for its answer."""
    models.lay(name, gated(gate))
    answer = begin(models.load, name)
    wait_for(lambda: is_under_way(models, name), 20, lambda: models.log)
    assert not answer.done()
    return lambda: answer.result(60)


def test_of_twenty_loads_of_one_name_one_wins(models: ModelsStack, half_plus_two: Path) -> None:
    models.lay("one", half_plus_two)
    before = len(models.holdings().processes)

    with ThreadPoolExecutor(20) as callers:
        answers = list(callers.map(models.load, ["one"] * 20))

    assert Counter({200: 1, 409: 19}) == Counter(answer.status for answer in answers)
    assert {409} == {refusal(answer)[0] for answer in answers if answer.status != 200}
    assert RESULT == models.invoke_model("one").json()
    assert before + 1 == len(models.holdings().processes)


def test_loads_of_other_names_and_calls_of_other_models_run_beside_one_that_hangs(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path, gated: Gated
) -> None:
    gate = tmp_path / "gate"
    loaded = begin_gated(models, "hangs", gated, gate)

    assert 200 == models.ping()
    models.load_new("first", half_plus_two)
    models.load_new("second", half_plus_two)
    assert ["first", "second"] == list(models.listed())
    assert RESULT == models.invoke_model("first").json()
    assert 200 == models.unload("second").status
    assert 404 == refusal(models.request("GET", "/models/hangs"))[0]
    assert 404 == refusal(models.invoke_model("hangs"))[0]
    assert 409 == refusal(models.load("hangs"))[0]

    gate.touch()
    assert 200 == loaded().status
    assert RESULT == models.invoke_model("hangs").json()


def seconds_at_95_percent(act: Callable[[], object]) -> float:
    """Return the time within which 19 of 20 calls are done."""
    times = []
    for _ in range(60):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return statistics.quantiles(times, n=20)[-1]


def test_a_load_that_hangs_slows_nothing(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path, gated: Gated
) -> None:
    models.load_new("quick", half_plus_two)
    acts: dict[str, Callable[[], object]] = {
        "ping": models.ping,
        "list": models.listed,
        "invoke": lambda: models.invoke_model("quick"),
    }
    usual = {name: min(seconds_at_95_percent(act) for _ in range(2)) for name, act in acts.items()}
    loaded = begin_gated(models, "hangs", gated, tmp_path / "gate")

    # Others use this machine too: what a load holds up would be held up every time.
    def is_unchanged(name: str) -> bool:
        return any(seconds_at_95_percent(acts[name]) < usual[name] + 0.02 for _ in range(4))

    assert dict.fromkeys(acts, True) == {name: is_unchanged(name) for name in acts}
    (tmp_path / "gate").touch()
    assert 200 == loaded().status


def test_a_load_goes_on_when_its_caller_leaves(models: ModelsStack, tmp_path: Path, gated: Gated) -> None:
    gate = tmp_path / "gate"
    url = models.lay("left", gated(gate))
    order = json.dumps({"model_name": "left", "url": url}).encode()
    with socket.create_connection(("127.0.0.1", models.port), timeout=10) as caller:
        caller.sendall(
            b"POST /models HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(order), order)
        )
        wait_for(lambda: is_under_way(models, "left"), 20, lambda: models.log)

    gate.touch()

    wait_for(lambda: models.request("GET", "/models/left").status == 200, 20, lambda: models.log)
    assert 409 == refusal(models.load("left"))[0]
    assert RESULT == models.invoke_model("left").json()


def test_an_unload_ends_a_load_that_is_under_way(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path, gated: Gated
) -> None:
    before = models.holdings()
    loaded = begin_gated(models, "broken-off", gated, tmp_path / "gate")

    unloaded = models.unload("broken-off")

    assert (200, "application/json") == (unloaded.status, unloaded.content_type)
    assert before == models.holdings()
    assert 409 == refusal(loaded())[0]
    assert 404 == refusal(models.request("GET", "/models/broken-off"))[0]
    models.load_new("broken-off", half_plus_two)


def test_all_invocations_find_a_model_until_it_is_unloaded_and_none_does_afterwards(
    models: ModelsStack, half_plus_two: Path
) -> None:
    models.load_new("seen", half_plus_two)

    assert [200] * 40 == [models.invoke_model("seen").status for _ in range(40)]
    assert 200 == models.unload("seen").status
    assert [404] * 40 == [refusal(models.invoke_model("seen"))[0] for _ in range(40)]


def test_an_unload_waits_for_the_requests_in_flight(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    before = models.holdings()
    models.load_new("busy", artifact_with_hooks(tmp_path, half_plus_two, WAITING_IN_REQUEST))
    gate = tmp_path / "gate"
    answer = begin(models.invoke_model, "busy", str(gate))
    wait_for((tmp_path / "arrived").exists, 10, lambda: models.log)

    unloaded = begin(models.unload, "busy")
    wait_for(lambda: models.invoke_model("busy", str(tmp_path)).status == 404, 10, lambda: models.log)
    assert not unloaded.done()
    assert not answer.done()
    # A load of the same name begins when nothing is left of the one before.
    reloaded = begin(models.load, "busy", models.lay("next", half_plus_two))
    assert {} == models.listed()
    gate.touch()

    assert (200, b"answered") == (answer.result(10).status, answer.result(0).body)
    assert 200 == unloaded.result(30).status
    assert description("busy", models.url("next")) == reloaded.result(30).json()
    assert RESULT == models.invoke_model("busy").json()
    assert 200 == models.unload("busy").status
    assert before == models.holdings()


def test_many_models_come_and_go_at_once(models: ModelsStack, half_plus_two: Path) -> None:
    names = [f"n{number}" for number in range(6)]
    for name in names:
        models.lay(name, half_plus_two)

    def live(name: str) -> list[int]:
        statuses = [models.load(name).status]
        statuses += [models.invoke_model(name, BODY).status for _ in range(5)]
        return [*statuses, models.unload(name).status, models.invoke_model(name).status]

    with ThreadPoolExecutor(len(names)) as callers:
        lives = list(callers.map(live, names))

    assert [[200] * 7 + [404]] * len(names) == lives
