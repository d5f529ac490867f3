"""Loads that fail leave nothing, and only a want of memory or ports is 507 (C24), also at an invocation."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks, stub_model
from field_stacks import PASSING_ON
from multi_model_stack import RESULT, ModelsStack, begin, leaving_nothing, refusal
from pierhead.supervisor.memory_use import memory_use
from running_stack import wait_for
from stub_binary import StubBinary

REFUSED = '{"instances": ["REFUSE=RESOURCE_EXHAUSTED"]}'
NO_MEMORY_IN_HOOKS = """
    raise MemoryError("no room for the table")
    """
TALKING_OF_MEMORY = """
    raise RuntimeError("CUDA out of memory, RESOURCE_EXHAUSTED: OOM when allocating, std::bad_alloc")
    """
KILLED_AT_IMPORT = """
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    """
MISSING_MODULE = """
    import not_there_at_all
    """
BARE = """
    ANSWER = 42
    """


@pytest.fixture(scope="module")
def stubbed(
    free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelsStack]:
    """Yield an endpoint on the stub with ports for two models, and with 10 s for a load."""
    port = free_ports(31)
    environ = {
        "SAGEMAKER_SAFE_PORT_RANGE": f"{port + 1}-{port + 4}",
        "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "10",
    }
    with ModelsStack(port, StubBinary(tmp_path_factory.mktemp("stubbed") / "stub"), **environ) as stack:
        stack.wait_until_ready()
        yield stack


@pytest.fixture
def narrow(stubbed: ModelsStack, tmp_path: Path) -> Iterator[ModelsStack]:
    """Yield the stub's endpoint with one model, which it has to serve in the end, and to leave nothing."""
    with leaving_nothing(stubbed) as models:
        models.load_new("first", stub_model(tmp_path / "first"))
        yield models
        assert RESULT == models.invoke_model("first").json()


def fail_to_load(models: ModelsStack, name: str, artifact: Path) -> tuple[int, str]:
    """Return the refusal of a load, of which nothing is left."""
    models.lay(name, artifact)
    before = models.holdings()
    refused = refusal(models.load(name))
    assert before == models.holdings()
    assert 404 == refusal(models.request("GET", f"/models/{name}"))[0]
    assert 404 == refusal(models.invoke_model(name))[0]
    return refused


@pytest.mark.parametrize(
    ("hooks", "status", "words"),
    [
        (MISSING_MODULE, 500, "not_there_at_all"),
        (BARE, 500, "handler"),
        (TALKING_OF_MEMORY, 500, "CUDA out of memory"),
        (NO_MEMORY_IN_HOOKS, 507, ""),
        (KILLED_AT_IMPORT, 507, ""),
    ],
    ids=["no module", "no hook", "talk of memory", "MemoryError", "killed"],
)
def test_hooks_that_cannot_be_imported_fail_their_load_with_the_reason(
    narrow: ModelsStack, tmp_path: Path, hooks: str, status: int, words: str
) -> None:
    model = stub_model(tmp_path / "model")

    refused, sentence = fail_to_load(narrow, "failing", artifact_with_hooks(tmp_path, model, hooks))

    assert status == refused, sentence
    assert words in sentence
    assert str(narrow.run_folder) not in sentence
    # A failure is no ghost: the repaired model is loaded under the same name.
    narrow.load_new("failing", model)
    assert RESULT == narrow.invoke_model("failing").json()


@pytest.mark.parametrize("words", ["out of memory", "Out of memory."])
def test_a_model_server_that_says_it_lacks_memory_is_507(
    narrow: ModelsStack, tmp_path: Path, words: str
) -> None:
    status, sentence = fail_to_load(narrow, "large", stub_model(tmp_path / "knobs", EXIT_AT_LOAD=words))

    assert 507 == status
    assert "'large'" in sentence


@pytest.mark.parametrize(
    "words",
    [
        "cannot open the model BLOOM",
        "not found: /opt/ml/models/out of memory/model",
        "RESOURCE_EXHAUSTED is not what has happened",
    ],
)
def test_words_that_only_look_like_it_are_500(narrow: ModelsStack, tmp_path: Path, words: str) -> None:
    artifact = stub_model(tmp_path / "knobs", EXIT_AT_LOAD=words)

    assert 500 == fail_to_load(narrow, "BLOOM", artifact)[0]
    url = narrow.lay("out of memory", artifact)
    assert 500 == refusal(narrow.load("OOM.bad_alloc", url))[0]


def test_a_process_killed_while_it_loads_is_507(narrow: ModelsStack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    narrow.lay("killed", stub_model(tmp_path / "knobs", READY_WHEN=str(gate)))
    before = narrow.holdings()
    loaded = begin(narrow.load, "killed")
    wait_for(lambda: len(narrow.holdings().processes - before.processes) == 1, 10, lambda: narrow.log)

    for pid in narrow.holdings().processes - before.processes:
        os.kill(pid, signal.SIGKILL)

    assert 507 == refusal(loaded.result(20))[0]
    assert before == narrow.holdings()
    gate.touch()
    assert 200 == narrow.load("killed").status


@pytest.mark.parametrize("has_hooks", [False, True], ids=["shared workers", "own workers"])
def test_a_model_server_that_lacks_memory_for_a_request_is_507(
    narrow: ModelsStack, tmp_path: Path, has_hooks: bool
) -> None:
    artifact = stub_model(tmp_path / "knobs", INPUT_DTYPE="DT_STRING")
    if has_hooks:
        artifact = artifact_with_hooks(tmp_path, artifact, PASSING_ON)
    narrow.load_new("exhausted", artifact)

    status, sentence = refusal(narrow.invoke_model("exhausted", REFUSED))

    assert 507 == status
    assert "the stub was asked to refuse" in sentence
    assert {"predictions": ["well"]} == narrow.invoke_model("exhausted", '{"instances": ["well"]}').json()


def test_a_name_or_a_body_that_speaks_of_memory_is_no_507(narrow: ModelsStack, tmp_path: Path) -> None:
    narrow.load_new("OOM", stub_model(tmp_path / "model"))
    asked = refusal(narrow.invoke_model("OOM", '{"instances": [1.0], "signature_name": "out of memory"'))

    assert 400 == asked[0]
    assert 404 == refusal(narrow.invoke_model("RESOURCE_EXHAUSTED"))[0]


def test_a_load_that_finds_no_ports_is_507_until_one_model_goes(narrow: ModelsStack, tmp_path: Path) -> None:
    artifact = stub_model(tmp_path / "plain")
    narrow.load_new("a", artifact)

    status, sentence = fail_to_load(narrow, "b", artifact)

    assert 507 == status
    assert "SAGEMAKER_SAFE_PORT_RANGE" in sentence
    assert RESULT == narrow.invoke_model("a").json()
    assert 200 == narrow.unload("a").status
    for _ in range(2):
        # Ports that are given back are handed out again, and again.
        assert 200 == narrow.load("b").status
        assert RESULT == narrow.invoke_model("b").json()
        assert 200 == narrow.unload("b").status


def test_a_load_that_takes_too_long_while_memory_is_ample_is_408(narrow: ModelsStack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    artifact = stub_model(tmp_path / "knobs", READY_WHEN=str(gate))
    begun = time.monotonic()

    status, sentence = fail_to_load(narrow, "slow", artifact)

    assert 408 == status
    assert "SAGEMAKER_TFS_WAIT_TIME_SECONDS" in sentence
    assert 10 <= time.monotonic() - begun < 20
    gate.touch()
    assert 200 == narrow.load("slow").status
    assert 200 == narrow.unload("slow").status


def test_a_load_beyond_the_watermark_of_memory_is_507(
    free_ports: Callable[[int], int], tmp_path: Path
) -> None:
    use = memory_use()
    if use is None or use.percent <= 1.5:
        pytest.skip("less than a hundredth of this machine's memory is used")
    environ = {"PIERHEAD_MEMORY_WATERMARK_PERCENT": "1"}

    with ModelsStack(free_ports(31), StubBinary(tmp_path / "stub"), **environ) as stack:
        stack.wait_until_ready()
        status, sentence = fail_to_load(stack, "more", stub_model(tmp_path / "model"))

        assert 507 == status
        assert "PIERHEAD_MEMORY_WATERMARK_PERCENT" in sentence
        assert 200 == stack.ping()
