"""When which rows run: on a clock that stands still, and without threads but where they matter."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pierhead.errors import Code, ServingError
from pierhead.modelserver.batching.parameters import BatchingParameters
from pierhead.modelserver.batching.scheduler import BatchQueue, Scheduler, start_threads
from pierhead.modelserver.batching.tasks import Share, Task
from pierhead.modelserver.waiter import Waiter

SECONDS = 30.0
FOUR_ROWS = BatchingParameters(max_batch_size=4, batch_timeout_micros=1000, max_enqueued_batches=2)
SPLITTING = replace(
    FOUR_ROWS, max_batch_size=10, enable_large_batch_splitting=True, max_execution_batch_size=4
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def task_of(rows: int) -> Task:
    return Task({"x": np.zeros(rows, np.float32)}, Waiter(lambda: None))


def queue_of(parameters: BatchingParameters) -> BatchQueue:
    return BatchQueue(parameters, lambda _: None)


def filled(scheduler: Scheduler, parameters: BatchingParameters, *sizes: int) -> BatchQueue:
    queue = queue_of(parameters)
    for rows in sizes:
        scheduler.submit(queue, task_of(rows))
    return queue


def sizes_of(scheduler: Scheduler) -> list[int] | float:
    """Return the sizes of the shares in the batch that is due, or the time when one will be."""
    found = scheduler.poll()
    return [share.size for share in found[1]] if isinstance(found, tuple) else found


def refusal(queue: BatchQueue, rows: int) -> tuple[Code, str]:
    with pytest.raises(ServingError) as caught:
        queue.add(task_of(rows), 0.0)
    return caught.value.code, caught.value.message


def test_batch_waits_for_company_from_its_first_task() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    queue = filled(scheduler, FOUR_ROWS, 1)
    clock.now += 0.0009
    scheduler.submit(queue, task_of(2))

    assert sizes_of(scheduler) == pytest.approx(100.001)
    clock.now = 100.0011
    assert sizes_of(scheduler) == [1, 2]
    assert sizes_of(scheduler) == math.inf


def test_full_batch_does_not_wait() -> None:
    scheduler = Scheduler(Clock())
    filled(scheduler, FOUR_ROWS, 3, 1)

    assert sizes_of(scheduler) == [3, 1]


def test_no_timeout_runs_what_is_there() -> None:
    scheduler = Scheduler(Clock())
    filled(scheduler, replace(FOUR_ROWS, batch_timeout_micros=0), 1, 1)

    assert sizes_of(scheduler) == [1, 1]


def test_task_that_does_not_fit_closes_the_open_batch() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    filled(scheduler, FOUR_ROWS, 3, 2)

    assert sizes_of(scheduler) == [3]
    assert sizes_of(scheduler) == pytest.approx(100.001)
    clock.now += 1
    assert sizes_of(scheduler) == [2]


def test_what_is_due_first_runs_first_whatever_its_queue() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    filled(scheduler, replace(FOUR_ROWS, batch_timeout_micros=9000), 1)
    filled(scheduler, FOUR_ROWS, 2)
    clock.now += 1

    assert [sizes_of(scheduler), sizes_of(scheduler)] == [[2], [1]]


def test_full_queue_refuses_what_does_not_fit_the_open_batch() -> None:
    queue = filled(Scheduler(Clock()), FOUR_ROWS, 3, 3)
    expected = (
        "The batch scheduling queue to which this task was submitted is full; currently 2 batches enqueued "
        "and max_enqueued_batches is 2"
    )

    assert (Code.UNAVAILABLE, expected) == refusal(queue, 2)
    queue.add(task_of(1), 0.0)


def test_batches_that_run_do_not_fill_the_queue() -> None:
    scheduler = Scheduler(Clock())
    queue = filled(scheduler, FOUR_ROWS, 4, 4)
    assert sizes_of(scheduler) == [4]

    queue.add(task_of(4), 0.0)


def test_task_beyond_the_largest_batch_is_refused() -> None:
    expected = Code.INVALID_ARGUMENT, "Task size 5 is larger than maximum input batch size 4"
    assert expected == refusal(queue_of(FOUR_ROWS), 5)

    expected = Code.INVALID_ARGUMENT, "Task size 11 is larger than maximum input batch size 10"
    assert expected == refusal(queue_of(replace(SPLITTING, max_enqueued_batches=9)), 11)


def test_large_task_is_split_over_batches() -> None:
    scheduler = Scheduler(Clock())
    filled(scheduler, replace(SPLITTING, max_enqueued_batches=3), 1, 9)

    assert [sizes_of(scheduler), sizes_of(scheduler)] == [[1, 3], [4]]
    assert sizes_of(scheduler) == pytest.approx(100.001)


def test_split_task_is_refused_where_its_rows_have_no_room() -> None:
    queue = filled(Scheduler(Clock()), SPLITTING, 3)
    expected = (
        "The batch scheduling queue to which this task was submitted is full; task size is 6 but scheduling "
        "capacity is only 5 (num_enqueued_batches=1, max_enqueued_batches=2, open_batch_size=3, "
        "max_execution_batch_size=4)"
    )

    assert (Code.UNAVAILABLE, expected) == refusal(queue, 6)
    queue.add(task_of(5), 0.0)


@given(st.lists(st.integers(1, 10), max_size=12), st.booleans())
def test_every_row_runs_once_and_in_order(sizes: list[int], splits: bool) -> None:
    parameters = replace(SPLITTING, max_enqueued_batches=99, enable_large_batch_splitting=splits)
    scheduler = Scheduler(Clock())
    queue = queue_of(replace(parameters, batch_timeout_micros=0))
    tasks = [task_of(size) for size in sizes]
    for task in tasks:
        scheduler.submit(queue, task)
    shares: list[Share] = []
    while isinstance(found := scheduler.poll(), tuple):
        assert 0 < sum(share.size for share in found[1]) <= (4 if splits else 10)
        shares += found[1]

    rows = [(tasks.index(share.task), row) for share in shares for row in range(share.start, share.stop)]
    assert [(number, row) for number, size in enumerate(sizes) for row in range(size)] == rows


def test_task_of_no_rows_is_a_share_of_its_own() -> None:
    scheduler = Scheduler(Clock())
    filled(scheduler, replace(FOUR_ROWS, batch_timeout_micros=0), 4, 0)

    assert [sizes_of(scheduler), sizes_of(scheduler)] == [[4], [0]]


# Threads.


def test_closing_runs_what_waits_and_refuses_more() -> None:
    scheduler = Scheduler()
    ran: list[int] = []
    never = replace(FOUR_ROWS, batch_timeout_micros=10**12)
    queue = BatchQueue(never, lambda batch: ran.extend(share.size for share in batch))
    scheduler.submit(queue, task_of(2))
    threads = start_threads(scheduler, 1, "test")
    scheduler.close(queue)

    assert ran == [2]
    with pytest.raises(ServingError) as caught:
        scheduler.submit(queue, task_of(1))
    assert caught.value.code is Code.UNAVAILABLE
    end(scheduler, threads)


def test_one_slow_batch_does_not_hold_up_another_queue() -> None:
    scheduler = Scheduler()
    is_let_go, others_ran = threading.Event(), threading.Event()
    slow = BatchQueue(FOUR_ROWS, lambda _: assert_soon(is_let_go))
    others = BatchQueue(FOUR_ROWS, lambda _: others_ran.set())
    threads = start_threads(scheduler, 2, "test")
    scheduler.submit(slow, task_of(1))
    scheduler.submit(others, task_of(1))

    assert others_ran.wait(SECONDS)
    is_let_go.set()
    end(scheduler, threads)


def test_many_threads_at_once_each_get_their_own_rows_back() -> None:
    scheduler = Scheduler()
    queue = BatchQueue(replace(SPLITTING, max_enqueued_batches=999, batch_timeout_micros=200), doubled)
    threads = start_threads(scheduler, 3, "test")

    def ask(number: int) -> bool:
        rows = np.arange(number % 10 + 1) + number * 100
        is_ready = threading.Event()
        task = Task({"x": rows}, Waiter(is_ready.set))
        scheduler.submit(queue, task)
        return is_ready.wait(SECONDS) and np.array_equal(rows * 2, task.outputs()["y"])

    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        assert all(clients.map(ask, range(400), timeout=SECONDS))
    end(scheduler, threads)


def doubled(batch: Sequence[Share]) -> None:
    for share in batch:
        share.task.settle(share, {"y": share.inputs["x"] * 2})


def assert_soon(event: threading.Event) -> None:
    assert event.wait(SECONDS)


def end(scheduler: Scheduler, threads: list[threading.Thread]) -> None:
    scheduler.stop()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
