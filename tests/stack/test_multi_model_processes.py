"""Processes that die beneath loaded models, and models with several servers: nobody else notices."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from field_stacks import EMBEDDED, PASSING_ON, STUB
from multi_model_stack import RESULT, ModelsStack, begin, leaving_nothing, refusal
from running_stack import Answer, descendants, wait_for
from stub_binary import StubBinary
from test_life import is_alive


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(partial(is_gone, pid), 5)


def is_fit(answer: Answer) -> bool:
    """Return whether an answer is right, or one that says in JSON that a process is away."""
    return answer.json() == RESULT if answer.status == 200 else refusal(answer)[0] == 503


def invoke_until_well(models: ModelsStack, name: str) -> None:
    """Invoke a model until it answers again; whatever it answers before has to be fit."""

    def is_well() -> bool:
        answer = models.invoke_model(name)
        assert is_fit(answer), answer
        return answer.status == 200

    wait_for(is_well, 30, lambda: models.log)


@pytest.mark.parametrize("has_hooks", [False, True], ids=["no hooks", "own hooks"])
def test_a_model_server_that_is_killed_comes_back_and_no_other_model_notices(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path, has_hooks: bool
) -> None:
    if has_hooks and models.stub is not None:
        pytest.skip("the workers are the same with the stub")
    artifact = artifact_with_hooks(tmp_path, half_plus_two, PASSING_ON) if has_hooks else half_plus_two
    models.load_new("other", half_plus_two)
    models.load_new("hit", artifact)
    pid = models.pid_of("hit/model-server-1")
    others = models.pid_of("other/model-server-1")

    kill(pid)
    invoked = [begin(models.invoke_model, name) for name in ("hit", "other", "hit", "other")]

    answers = [answer.result(30) for answer in invoked]
    assert [True] * 4 == [is_fit(answer) for answer in answers], answers
    assert [200, 200] == [answer.status for answer in answers[1::2]]
    invoke_until_well(models, "hit")
    assert ["hit", "other"] == list(models.listed())
    assert 409 == refusal(models.load("hit"))[0]
    wait_for(lambda: models.pid_of("hit/model-server-1") != pid, 10, lambda: models.log)
    assert others == models.pid_of("other/model-server-1")
    assert is_alive(others)
    assert [200] * 20 == [models.invoke_model("hit").status for _ in range(20)]


def test_own_workers_that_are_killed_come_back(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    if models.stub is not None:
        pytest.skip("the workers are the same with the stub")
    models.load_new("hit", artifact_with_hooks(tmp_path, half_plus_two, PASSING_ON))
    models.load_new("other", half_plus_two)

    for part in ("worker", "master"):
        master = models.pid_of("hit/handler-workers")
        (worker,) = descendants(master)
        kill(worker if part == "worker" else master)

        assert RESULT == models.invoke_model("other").json()
        invoke_until_well(models, "hit")
        assert ["hit", "other"] == list(models.listed())
        assert [200] * 20 == [models.invoke_model("hit").status for _ in range(20)]
        # Of a master that was killed, no worker stays.
        wait_for(partial(is_gone, worker), 10)


def test_a_shared_worker_that_is_killed_takes_no_model_with_it(
    endpoint: ModelsStack, half_plus_two: Path
) -> None:
    names = ["one", "two"]
    for name in names:
        endpoint.load_new(name, half_plus_two)
    urls = endpoint.listed()
    workers = list(descendants(endpoint.pid_of("handler-workers")))

    kill(workers[0])

    assert urls == endpoint.listed()
    for name in names:
        invoke_until_well(endpoint, name)
        assert [200] * 20 == [endpoint.invoke_model(name).status for _ in range(20)]
        assert 409 == refusal(endpoint.load(name))[0]
    wait_for(lambda: len(list(descendants(endpoint.pid_of("handler-workers")))) == len(workers), 20)
    endpoint.unload_all()


def test_all_shared_workers_that_are_killed_take_no_model_with_them(
    endpoint: ModelsStack, half_plus_two: Path
) -> None:
    endpoint.load_new("kept", half_plus_two)
    master = endpoint.pid_of("handler-workers")

    kill(master)

    assert ["kept"] == list(endpoint.listed())
    wait_for(lambda: endpoint.pid_of("handler-workers") != master, 30, lambda: endpoint.log)
    invoke_until_well(endpoint, "kept")
    assert 200 == endpoint.unload("kept").status
    wait_for(lambda: endpoint.ping() == 200, 20, lambda: endpoint.log)


def test_a_model_whose_server_dies_again_and_again_is_dropped_and_can_be_loaded_again(
    models: ModelsStack, half_plus_two: Path
) -> None:
    if models.stub is not None:
        pytest.skip("it is the supervisor that counts, and a fork is faster")
    models.load_new("other", half_plus_two)
    models.load_new("dying", half_plus_two)

    def end() -> bool:
        """Kill the model's server where there is one, and return whether the model is gone."""
        pid = models.pid_of("dying/model-server-1")
        if is_alive(pid):
            kill(pid)
        answer = models.invoke_model("dying")
        assert answer.status in (200, 404, 503), answer
        assert answer.status == 200 or refusal(answer)
        assert 200 == models.ping()
        return models.request("GET", "/models/dying").status == 404

    wait_for(end, 60, lambda: models.log)

    assert (404, "model 'dying' is not loaded") == refusal(models.invoke_model("dying"))
    wait_for(lambda: 404 == models.unload("dying").status, 5)
    assert ["other"] == list(models.listed())
    assert RESULT == models.invoke_model("other").json()
    models.load_new("dying", half_plus_two)
    assert RESULT == models.invoke_model("dying").json()


def test_models_outlive_the_nursery(endpoint: ModelsStack, half_plus_two: Path) -> None:
    if endpoint.stub is not None:
        pytest.skip("it needs none")
    endpoint.load_new("kept", half_plus_two)
    nursery = endpoint.pid_of("nursery")

    kill(nursery)

    assert [200] * 10 == [endpoint.invoke_model("kept").status for _ in range(10)]
    # It waits for the nursery, which takes seconds to come back.
    endpoint.load_new("new", half_plus_two)
    assert RESULT == endpoint.invoke_model("new").json()
    assert nursery != endpoint.pid_of("nursery")
    endpoint.unload_all()


@pytest.fixture(scope="module", params=[EMBEDDED, STUB])
def endpoint_of_two(
    request: pytest.FixtureRequest, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelsStack]:
    """Yield an endpoint with two servers for each model, which batch."""
    stub = StubBinary(tmp_path_factory.mktemp("doubled") / "stub") if request.param == STUB else None
    environ = {
        "SAGEMAKER_TFS_INSTANCE_COUNT": "2",
        "SAGEMAKER_TFS_ENABLE_BATCHING": "true",
        "SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES": "1000",
    }
    with ModelsStack(free_ports(31), stub, **environ) as stack:
        stack.wait_until_ready()
        yield stack


@pytest.fixture
def doubled(endpoint_of_two: ModelsStack) -> Iterator[ModelsStack]:
    """Yield that endpoint without a model, and hold it to leave nothing of those that it loads."""
    with leaving_nothing(endpoint_of_two) as models:
        yield models


def served(stack: ModelsStack, pids: list[int]) -> dict[int, float]:
    """Return a measure of what each process has done so far: the stub's records, else its processor time."""
    if stack.stub is not None:
        counts = Counter(each.pid for each in stack.stub.predictions())
        return {pid: float(counts[pid]) for pid in pids}
    # User and system time are the 12th and 13th field after the name in brackets.
    fields = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids}
    return {pid: float(values[11]) + float(values[12]) for pid, values in fields.items()}


@pytest.mark.parametrize("has_hooks", [False, True], ids=["no hooks", "own hooks"])
def test_two_servers_share_the_load_and_one_may_die(
    doubled: ModelsStack, half_plus_two: Path, tmp_path: Path, has_hooks: bool
) -> None:
    if has_hooks and doubled.stub is not None:
        pytest.skip("the workers are the same with the stub")
    artifact = artifact_with_hooks(tmp_path, half_plus_two, PASSING_ON) if has_hooks else half_plus_two
    doubled.load_new("pair", artifact)
    pids = [doubled.pid_of(f"pair/model-server-{number}") for number in (1, 2)]
    at_first = served(doubled, pids)

    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(doubled.invoke_model, ["pair"] * 400))

    assert Counter({200: 400}) == Counter(answer.status for answer in answers)
    assert all(answer.json() == RESULT for answer in answers)
    assert [True, True] == [value > at_first[pid] for pid, value in served(doubled, pids).items()]

    kill(pids[0])
    answers = [doubled.invoke_model("pair") for _ in range(40)]
    assert [True] * 40 == [is_fit(answer) for answer in answers], answers
    # The other one goes on: with a request or two lost at most, not half of them.
    well = Counter(answer.status for answer in answers)[200]
    wait_for(lambda: doubled.pid_of("pair/model-server-1") != pids[0], 20, lambda: doubled.log)
    assert [200] * 20 == [doubled.invoke_model("pair").status for _ in range(20)]
    assert pids[1] == doubled.pid_of("pair/model-server-2")
    assert well >= 36


def runs_of_batches(stack: ModelsStack) -> float:
    page = stack.request("GET", "/metrics").body.decode()
    name = ":tensorflow:serving:batching_session:wrapped_run_count"
    return sum(map(float, re.findall(rf"^{name}\S* (\S+)$", page, re.MULTILINE)))


def test_each_model_batches_for_itself(doubled: ModelsStack, half_plus_two: Path) -> None:
    names = ["left", "right"]
    for name in names:
        doubled.load_new(name, half_plus_two)

    with ThreadPoolExecutor(16) as callers:
        bodies = [f'{{"instances": [{number}.0]}}' for number in range(80)]
        answers = list(callers.map(doubled.invoke_model, names * 40, bodies))

    assert [{"predictions": [number / 2 + 2]} for number in range(80)] == [each.json() for each in answers]
    if doubled.stub is not None:
        flags = [
            dict(flag.lstrip("-").partition("=")[::2] for flag in each) for each in doubled.stub.starts()
        ]
        assert {"true"} == {each["enable_batching"] for each in flags}
        assert [True] * len(flags) == [Path(each["batching_parameters_file"]).is_file() for each in flags]
    else:
        assert 0 < runs_of_batches(doubled) <= 80
