"""Work that waits for others: with a thread for the wait, and without."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pierhead.modelserver.awaited_work import Outcome, awaited_answer
from pierhead.modelserver.http_messages import Answer, AwaitedWork, Work, finished
from pierhead.modelserver.waiter import Waiter

SECONDS = 30.0
ANSWER, FAILED = Answer(200, b"done"), Answer(500)


def guard(work: Callable[[], Outcome]) -> Outcome | Answer:
    try:
        return work()
    except ZeroDivisionError:
        return FAILED


def work_of(step: Callable[[], Answer | Work]) -> AwaitedWork:
    """Return work whose wait another thread ends."""

    def begin(waiter: Waiter) -> Callable[[], Answer | Work]:
        threading.Thread(target=waiter.ready).start()
        return step

    return AwaitedWork(begin)


def answer_in_loop(work: AwaitedWork) -> Answer:
    async def wait() -> Answer:
        with ThreadPoolExecutor(1) as threads:
            outcome = await asyncio.wait_for(awaited_answer(work, threads, guard, lambda: False), SECONDS)
            assert isinstance(outcome, Answer)
            return outcome

    return asyncio.run(wait())


@pytest.fixture(params=[AwaitedWork.__call__, answer_in_loop], ids=["thread", "loop"])
def answer_of(request: pytest.FixtureRequest) -> Callable[[AwaitedWork], Answer]:
    answer: Callable[[AwaitedWork], Answer] = request.param
    return answer


def test_answer_comes_after_the_wait(answer_of: Callable[[AwaitedWork], Answer]) -> None:
    assert ANSWER == answer_of(work_of(lambda: ANSWER))


def test_long_work_after_the_wait_is_done(answer_of: Callable[[AwaitedWork], Answer]) -> None:
    assert ANSWER == answer_of(work_of(lambda: lambda: ANSWER))


def test_refusal_needs_no_wait(answer_of: Callable[[AwaitedWork], Answer]) -> None:
    assert ANSWER == answer_of(AwaitedWork(lambda _: ANSWER))


@pytest.mark.parametrize(
    "work",
    [
        AwaitedWork(lambda _: ANSWER),
        work_of(lambda: ANSWER),
        work_of(lambda: lambda: ANSWER),
    ],
    ids=["refused", "short", "long"],
)
def test_finish_is_applied_once_wherever_the_answer_comes_from(
    answer_of: Callable[[AwaitedWork], Answer], work: AwaitedWork
) -> None:
    outcome = finished(work, lambda answer: replace(answer, body=answer.body + b"!"))

    assert isinstance(outcome, AwaitedWork)
    assert b"done!" == answer_of(outcome).body


def test_work_may_turn_out_to_wait_only_when_it_is_done() -> None:
    waiting = work_of(lambda: ANSWER)
    outcome = finished(lambda: waiting, lambda answer: replace(answer, body=b"finished"))

    assert not isinstance(outcome, Answer | AwaitedWork)
    made = outcome()
    assert isinstance(made, AwaitedWork)
    assert b"finished" == answer_in_loop(made).body


def test_fault_of_the_program_costs_one_answer() -> None:
    assert FAILED == answer_in_loop(work_of(lambda: Answer(1 // 0)))
    assert FAILED == answer_in_loop(AwaitedWork(lambda _: Answer(1 // 0)))


def test_client_that_goes_away_is_no_error() -> None:
    waiters: list[Waiter] = []

    def begin(waiter: Waiter) -> Callable[[], Answer]:
        waiters.append(waiter)
        return lambda: ANSWER

    async def give_up() -> None:
        with ThreadPoolExecutor(1) as threads:
            answer = awaited_answer(AwaitedWork(begin), threads, guard, lambda: False)
            answer.cancel()
            waiters[0].ready()
            await asyncio.sleep(0)

    asyncio.run(give_up())
    # And again when the loop has ended.
    waiters[0].ready()
