"""Runs that share batches, over a runtime without TensorFlow."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.modelserver.fake_runtime import FakePlatform, FakeRuntime

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.modelserver.batching.parameters import BatchingParameters
from pierhead.modelserver.batching.recording import BatchRecorder
from pierhead.modelserver.batching.runtime import (
    BatchingPlatform,
    BatchingRuntime,
    batching_platform,
    run_limit,
)
from pierhead.modelserver.batching.scheduler import BatchQueue, Scheduler, start_threads
from pierhead.modelserver.batching.tasks import Task
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.waiter import Waiter

SECONDS = 30.0
THREE_ROWS = BatchingParameters(max_batch_size=3, batch_timeout_micros=10**12)
AT_ONCE = BatchingParameters(batch_timeout_micros=0)
DEFAULT, PAIR = "serving_default", "pair"


class Recorder(FakeRuntime):
    """Keeps the inputs of its runs, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, Array]] = []
        self.failure: Exception | None = None

    def run(
        self,
        signature: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        in_caller: bool = False,
        timeout_ms: int = 0,
    ) -> dict[str, Array]:
        self.seen.append(dict(inputs))
        if self.failure:
            raise self.failure
        return super().run(signature, inputs, outputs, in_caller=in_caller, timeout_ms=timeout_ms)


class Watched(Scheduler):
    """Tells that a task waits."""

    def __init__(self) -> None:
        super().__init__()
        self.has_submitted = threading.Event()

    def submit(self, queue: BatchQueue, task: Task) -> None:
        super().submit(queue, task)
        self.has_submitted.set()


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler()
    threads = start_threads(scheduler, 2, "test")
    yield scheduler
    scheduler.stop()
    for thread in threads:
        thread.join(SECONDS)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def answers(runtime: BatchingRuntime, *runs: Any, **options: Any) -> list[Any]:
    """Return the outputs of runs that are made at once, or what they raise."""
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as threads:
        futures = [threads.submit(runtime.run, *run, **options) for run in runs]
        return [future.exception(SECONDS) or future.result() for future in futures]


def test_runs_at_once_share_a_batch(scheduler: Scheduler) -> None:
    inner = Recorder()
    runtime = BatchingRuntime(inner, scheduler, THREE_ROWS)
    first, second = answers(
        runtime, (DEFAULT, {"x": floats(2, 4)}, ("y",)), (DEFAULT, {"x": floats(6)}, ("y",))
    )

    assert [[3, 4], [5]] == [first["y"].tolist(), second["y"].tolist()]
    assert [3] == [len(inputs["x"]) for inputs in inner.seen]


def test_outputs_have_the_order_that_is_asked_for(scheduler: Scheduler) -> None:
    runtime = BatchingRuntime(Recorder(), scheduler, AT_ONCE)
    inputs = {"a": floats(5), "b": floats(3)}

    assert ["sum", "difference"] == list(runtime.run(PAIR, inputs, ("sum", "difference")))
    assert ["difference", "sum"] == list(runtime.run(PAIR, inputs, ("difference", "sum")))


@pytest.mark.parametrize(
    "other",
    [
        (DEFAULT, {"x": floats(1, 1, 1)}, ("y",)),
        (PAIR, {"a": floats(1, 1, 1), "b": floats(2, 2, 2)}, ("sum",)),
        (PAIR, {"a": np.ones(3), "b": np.ones(3)}, ("sum", "difference")),
    ],
    ids=["signature", "outputs", "dtype"],
)
def test_what_differs_does_not_mix(scheduler: Scheduler, other: Any) -> None:
    inner = Recorder()
    runtime = BatchingRuntime(inner, scheduler, THREE_ROWS)
    one = PAIR, {"a": floats(1, 1, 1), "b": floats(2, 2, 2)}, ("sum", "difference")
    answers(runtime, one, other)

    assert [3, 3] == [len(next(iter(inputs.values()))) for inputs in inner.seen]


def test_error_of_the_joint_run_is_everybodys(scheduler: Scheduler) -> None:
    inner = Recorder()
    inner.failure = ServingError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
    runtime = BatchingRuntime(inner, scheduler, THREE_ROWS)
    problems = answers(runtime, *[(DEFAULT, {"x": floats(1)}, ("y",))] * 3)

    assert [Code.DEADLINE_EXCEEDED] * 3 == [problem.code for problem in problems]
    assert 3 == len({id(problem) for problem in problems})


def test_fault_of_the_program_leaves_the_threads_alive(scheduler: Scheduler) -> None:
    inner = Recorder()
    inner.failure = ZeroDivisionError()
    runtime = BatchingRuntime(inner, scheduler, AT_ONCE)
    (problem,) = answers(runtime, (DEFAULT, {"x": floats(1)}, ("y",)))
    inner.failure = None

    assert problem.code is Code.INTERNAL
    assert [2.5] == runtime.run(DEFAULT, {"x": floats(1)}, ("y",))["y"].tolist()


def test_split_request_is_put_together_again(scheduler: Scheduler) -> None:
    inner = Recorder()
    parameters = replace(AT_ONCE, enable_large_batch_splitting=True, max_execution_batch_size=4)
    runtime = BatchingRuntime(inner, scheduler, parameters)
    rows = np.arange(10, dtype=np.float32)

    assert (rows / 2 + 2).tolist() == runtime.run(DEFAULT, {"x": rows}, ("y",))["y"].tolist()
    assert [2, 4, 4] == sorted(len(inputs["x"]) for inputs in inner.seen)


def test_request_of_no_rows_does_not_wait_for_company(scheduler: Scheduler) -> None:
    runtime = BatchingRuntime(Recorder(), scheduler, THREE_ROWS)

    assert [] == runtime.run(DEFAULT, {"x": floats()}, ("y",))["y"].tolist()


def test_run_can_be_begun_without_a_thread_that_waits(scheduler: Scheduler) -> None:
    runtime = BatchingRuntime(Recorder(), scheduler, THREE_ROWS)
    are_ready = [threading.Event(), threading.Event()]
    first, second = (
        runtime.begin(DEFAULT, {"x": rows}, ("y",), waiter=Waiter(event.set))
        for event, rows in zip(are_ready, (floats(2), floats(4, 6)), strict=True)
    )

    assert all(event.wait(SECONDS) for event in are_ready)
    assert [[3], [4, 5]] == [first()["y"].tolist(), second()["y"].tolist()]


def test_rows_of_a_waiter_that_is_gone_are_not_run(scheduler: Scheduler) -> None:
    inner = Recorder()
    runtime = BatchingRuntime(inner, scheduler, THREE_ROWS)
    is_ready = threading.Event()
    gone = runtime.begin(DEFAULT, {"x": floats(9, 9)}, ("y",), waiter=Waiter(is_ready.set, lambda: True))

    assert [2.5] == runtime.run(DEFAULT, {"x": floats(1)}, ("y",))["y"].tolist()
    assert [[1]] == [inputs["x"].tolist() for inputs in inner.seen]
    assert is_ready.wait(SECONDS)
    with pytest.raises(ServingError, match="nobody waits"):
        gone()


def test_request_without_rows_to_count_is_refused(scheduler: Scheduler) -> None:
    runtime = BatchingRuntime(Recorder(), scheduler, THREE_ROWS)

    with pytest.raises(ServingError, match="at least one dimension"):
        runtime.run(DEFAULT, {"x": np.float32(1)}, ("y",))  # type: ignore[dict-item]


def test_no_signature_is_steady(scheduler: Scheduler) -> None:
    assert not list(BatchingRuntime(Recorder(), scheduler, AT_ONCE).steady)  # type: ignore[call-overload]


def page_of(metrics: Metrics) -> dict[str, float]:
    """Return the numbers below `batching_session`."""
    pairs = (line.rpartition(" ") for line in metrics.page().decode().splitlines() if line[0] != "#")
    batching = ":tensorflow:serving:batching_session:"
    return {name.removeprefix(batching): float(number) for name, _, number in pairs if batching in name}


def test_monitoring_is_told_of_requests_and_runs(scheduler: Scheduler) -> None:
    metrics = Metrics()
    parameters = replace(THREE_ROWS, max_batch_size=4, allowed_batch_sizes=(4,), batch_timeout_micros=0)
    runtime = BatchingRuntime(FakeRuntime(), scheduler, parameters, BatchRecorder(metrics))
    runtime.run("pair", {"a": floats(1, 2, 3), "b": floats(4, 5, 6)}, ("sum",))
    page = page_of(metrics)

    assert (page["input_batch_size_count{}"], page["input_batch_size_sum{}"]) == (2, 6)
    assert (page["processed_batch_size_count{}"], page["processed_batch_size_sum{}"]) == (1, 4)
    assert page['padding_size_sum{execution_batch_size="4"}'] == 1
    assert page["wrapped_run_count{}"] == 1
    assert page['queuing_latency_count{thread_pool_name=""}'] == 1


def test_each_request_of_a_batch_has_waited(scheduler: Scheduler) -> None:
    metrics = Metrics()
    runtime = BatchingRuntime(FakeRuntime(), scheduler, THREE_ROWS, BatchRecorder(metrics))
    answers(runtime, (DEFAULT, {"x": floats(2, 4)}, ("y",)), (DEFAULT, {"x": floats(6)}, ("y",)))
    page = page_of(metrics)

    assert page["wrapped_run_count{}"] == 1
    assert page['queuing_latency_count{thread_pool_name=""}'] == 2
    assert 0 < page['queuing_latency_sum{thread_pool_name=""}'] < SECONDS * 1e6


def test_unloading_runs_what_waits() -> None:
    scheduler, inner = Watched(), Recorder()
    (thread,) = start_threads(scheduler, 1, "test")
    runtime = BatchingRuntime(inner, scheduler, THREE_ROWS)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(runtime.run, DEFAULT, {"x": floats(2)}, ("y",))
        assert scheduler.has_submitted.wait(SECONDS)
        runtime.unload()
        assert [3] == waiting.result(SECONDS)["y"].tolist()
    assert inner.is_unloaded
    scheduler.stop()
    thread.join(SECONDS)


# The limit of a joint run.


def limited(timeout_ms: int, enqueued: float = 100.0) -> Task:
    deadline = enqueued + timeout_ms / 1000 if timeout_ms else math.inf
    return Task({"x": floats(1)}, Waiter(lambda: None), deadline=deadline, timeout_ms=timeout_ms)


def test_joint_run_has_the_latest_deadline() -> None:
    assert 2000 == run_limit([limited(1000), limited(2000)], 100.0)
    assert 0 == run_limit([limited(1000), limited(0)], 500.0)
    assert 500 == run_limit([limited(1000), limited(2000)], 101.5)


def test_limits_are_few() -> None:
    limits = {run_limit([limited(30_000)], 100 + waited / 100) for waited in range(2999)}

    assert len(limits) == 8
    assert 30_000 == run_limit([limited(30_000)], 100.002)
    assert {1, 2, 3} == {run_limit([limited(3)], 100 + waited / 10_000) for waited in range(29)}


def test_deadlines_that_passed_in_the_queue_are_told() -> None:
    with pytest.raises(ServingError, match=r"Run\(\) timeout exceeded while waiting") as caught:
        run_limit([limited(1000), limited(500)], 101.0)

    assert caught.value.code is Code.RESOURCE_EXHAUSTED


# The platform.


def test_wrong_parameters_fail_the_load(tmp_path: Path) -> None:
    platform = BatchingPlatform(FakePlatform(), Scheduler(), BatchingParameters(allowed_batch_sizes=(8,)))

    with pytest.raises(ServingError, match="last entry was 8; expected 1000"):
        platform.load(tmp_path)


def test_version_with_a_file_of_its_own_is_batched_by_it(tmp_path: Path) -> None:
    platform = BatchingPlatform(FakePlatform(), Scheduler(), BatchingParameters(), per_model=True)
    (tmp_path / "batching_params.pbtxt").write_text("max_batch_size { value: 3 }")
    runtime = platform.load(tmp_path)

    with pytest.raises(ServingError, match="Task size 4 is larger than maximum input batch size 3"):
        runtime.run(DEFAULT, {"x": floats(1, 2, 3, 4)}, ("y",))


def test_version_without_a_file_of_its_own_is_not_batched(tmp_path: Path) -> None:
    platform = BatchingPlatform(FakePlatform(), Scheduler(), THREE_ROWS, per_model=True)

    assert isinstance(platform.load(tmp_path), FakeRuntime)


def test_start_without_threads_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "batching.config"
    file.write_text("num_batch_threads { value: 0 }")

    with pytest.raises(ServingError, match="num_batch_threads must be positive; was 0"):
        batching_platform(FakePlatform(), file, per_model=False)


def test_threads_have_the_files_name_and_number(tmp_path: Path) -> None:
    file = tmp_path / "batching.config"
    file.write_text("num_batch_threads { value: 3 } thread_pool_name { value: 'named' }")
    platform = batching_platform(FakePlatform(), file, per_model=True)
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("named")}
    platform.scheduler.stop()

    assert {"named_0", "named_1", "named_2"} == names
