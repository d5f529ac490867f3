"""Many requests at once, and what came of each."""

from __future__ import annotations

import http.client
from concurrent.futures import Future, ThreadPoolExecutor

from running_stack import Answer, RunningStack

__all__ = ["broke_off", "invoke_all", "start_invocations"]


def start_invocations(stack: RunningStack, body: str, count: int) -> list[Future[Answer]]:
    """Send one body `count` times at once, and return the answers to come."""
    threads = ThreadPoolExecutor(count)
    answers = [threads.submit(stack.invoke, body) for _ in range(count)]
    threads.shutdown(wait=False)
    return answers


def invoke_all(stack: RunningStack, body: str, count: int) -> list[Answer]:
    """Send one body `count` times at once, and return the answers."""
    return [answer.result(60) for answer in start_invocations(stack, body, count)]


def broke_off(answer: Future[Answer]) -> bool:
    """Return whether no answer came, or one that says that the stack is going."""
    try:
        return answer.result(60).status >= 500
    except (OSError, http.client.HTTPException):
        return True
