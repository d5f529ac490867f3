"""A request on its way through a queue: its rows go out in shares, its outputs come back in order.

A task is whole in one batch, or split over several; either way it is ready once, with the last share.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.modelserver.waiter import Waiter

__all__ = ["Share", "Task", "rows_of"]


def _nothing() -> None:
    pass


# Stands in for a waiter that was told: that one refers to whoever waits, who refers to the task.
NOBODY = Waiter(_nothing)


def rows_of(inputs: Mapping[str, Array]) -> int:
    """Return the length of dimension 0; raise ServingError INVALID_ARGUMENT where there is not one."""
    if not inputs:
        problem = "Batching Run() must have at least one input tensor"
    elif not all(array.ndim for array in inputs.values()):
        problem = "Batching Run() input tensors must have at least one dimension"
    elif len({len(array) for array in inputs.values()}) > 1:
        problem = "Batching Run() input tensors must have equal 0th-dimension size"
    else:
        return len(next(iter(inputs.values())))
    raise ServingError(Code.INVALID_ARGUMENT, problem)


class Task:
    """The rows of one request; the waiter is told once, by the thread that settles the last of them.

    `deadline` and `enqueued` are on the scheduler's clock; `timeout_ms` of 0 has no deadline, and `enqueued`
    is read by monitoring alone.
    """

    def __init__(
        self,
        inputs: Mapping[str, Array],
        waiter: Waiter,
        *,
        deadline: float = math.inf,
        timeout_ms: int = 0,
        enqueued: float = 0.0,
    ) -> None:
        self.inputs = inputs
        self.size = rows_of(inputs)
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.enqueued = enqueued
        self._missing = self.size
        self._parts: dict[int, Mapping[str, Array]] = {}
        self._failure: ServingError | None = None
        self._guard = threading.Lock()
        self._waiter = waiter

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for the outputs any more."""
        return self._waiter.is_gone()

    def settle(self, share: Share, outcome: Mapping[str, Array] | ServingError) -> None:
        """Take the outputs of a share, or the reason why it has none."""
        with self._guard:
            if isinstance(outcome, ServingError):
                self._failure = self._failure or outcome
            else:
                self._parts[share.start] = outcome
            self._missing -= share.size
            is_complete = self._missing == 0
        if is_complete:
            waiter, self._waiter = self._waiter, NOBODY
            waiter.ready()

    def outputs(self) -> Mapping[str, Array]:
        """Return the outputs of all rows, once all shares are settled; raise ServingError if one failed."""
        failure = self._failure
        if failure:
            # An exception of one's own: the batch's is raised by many threads at once.
            raise ServingError(failure.code, failure.message) from failure
        parts = [part for _, part in sorted(self._parts.items())]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class Share:
    """Some rows of a task that run in one batch."""

    task: Task
    start: int
    stop: int
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.stop - self.start)

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The rows of each input."""
        if self.size == self.task.size:
            return self.task.inputs
        return {name: array[self.start : self.stop] for name, array in self.task.inputs.items()}
