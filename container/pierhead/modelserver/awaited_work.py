"""Answers of work that waits for others, without a thread that waits.

With a thread for each request of a batch the threads would bound the batch, and waking them would cost more
than many a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from pierhead.modelserver.http_messages import Answer, AwaitedWork
from pierhead.modelserver.waiter import Waiter

__all__ = ["Guard", "awaited_answer"]

Outcome = TypeVar("Outcome")


class Guard(Protocol):
    """Returns what a function returns, or the answer for one that fails."""

    def __call__(self, work: Callable[[], Outcome], /) -> Outcome | Answer:
        """Return the outcome of the work."""


def awaited_answer(
    work: AwaitedWork, executor: Executor, guard: Guard, is_gone: Callable[[], bool]
) -> asyncio.Future[Answer | AwaitedWork]:
    """Return the answer to come, on the running event loop; the executor does long work after the wait.

    `is_gone` tells, from any thread, whether nobody reads an answer; the work is then not begun.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer | AwaitedWork] = loop.create_future()

    def settle() -> None:
        if answer.done():
            return
        outcome = step if isinstance(step, Answer) else guard(step)
        if isinstance(outcome, Answer):
            answer.set_result(outcome)
        else:
            job = loop.run_in_executor(executor, guard, outcome)
            job.add_done_callback(partial(_hand_on, answer))

    def ready() -> None:
        # The loop may have ended meanwhile; whoever calls must not suffer for it.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    step = guard(partial(work.begin, Waiter(ready, is_gone)))
    if isinstance(step, Answer):
        settle()
    return answer


def _hand_on(answer: asyncio.Future[Answer | AwaitedWork], job: asyncio.Future[Answer | AwaitedWork]) -> None:
    if not job.cancelled() and not answer.done():
        answer.set_result(job.result())
