"""Which rows run together, and when; nothing here knows arrays, models or threads of its own.

A queue holds closed batches and, last, the open one that still takes rows. A batch is due when it is full or
its first rows have waited long enough. All queues share one set of threads, which take what is due first.
Rules and messages: TensorFlow Serving's contract, section 7.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from pierhead.errors import Code, ServingError
from pierhead.modelserver.batching.parameters import BatchingParameters
from pierhead.modelserver.batching.tasks import Share, Task

__all__ = ["BatchQueue", "Clock", "Scheduler", "start_threads"]

Clock = Callable[[], float]
Batch = Sequence[Share]
QUEUE_FULL = "The batch scheduling queue to which this task was submitted is full;"


class _OpenBatch(list[Share]):
    size = 0
    opened = math.inf

    def add(self, share: Share, now: float) -> None:
        if not self:
            self.opened = now
        self.append(share)
        self.size += share.size


class BatchQueue:
    """The batches of requests that can run together; `process` runs one and must not raise."""

    def __init__(self, parameters: BatchingParameters, process: Callable[[Batch], None]) -> None:
        self.process = process
        self.is_closed = False
        self.running = 0
        self._parameters = parameters
        self._batches = deque([_OpenBatch()])

    @property
    def is_empty(self) -> bool:
        """Whether no rows wait."""
        return not self._batches[0]

    @property
    def due(self) -> float:
        """The time at which the first batch may run; infinity without one."""
        first = self._batches[0]
        is_full = first.size >= self._parameters.largest_batch
        if len(self._batches) > 1 or is_full or self.is_closed:
            return first.opened
        return first.opened + self._parameters.batch_timeout_micros / 1e6

    def add(self, task: Task, now: float) -> None:
        """Put a task's rows into the open batch, and new ones after it; raise ServingError where none fit."""
        self._check_room(task)
        start, is_whole = 0, not self._parameters.enable_large_batch_splitting
        while True:
            room = self._parameters.largest_batch - self._batches[-1].size
            if not room or (is_whole and task.size > room):
                self._batches.append(_OpenBatch())
                room = self._parameters.largest_batch
            stop = min(task.size, start + room)
            self._batches[-1].add(Share(task, start, stop), now)
            if stop == task.size:
                return
            start = stop

    def take(self) -> Batch:
        """Return the first batch, which then no longer waits."""
        batch = self._batches.popleft()
        if not self._batches:
            self._batches.append(_OpenBatch())
        return batch

    def _check_room(self, task: Task) -> None:
        limit = self._parameters.max_batch_size
        if task.size > limit:
            message = f"Task size {task.size} is larger than maximum input batch size {limit}"
            raise ServingError(Code.INVALID_ARGUMENT, message)
        if self.is_closed:
            raise ServingError(Code.UNAVAILABLE, "The version is being unloaded")
        if self._parameters.enable_large_batch_splitting:
            self._check_capacity(task)
        else:
            self._check_length(task)

    def _check_length(self, task: Task) -> None:
        waiting = len(self._batches)
        fits = self._batches[-1].size + task.size <= self._parameters.largest_batch
        if not fits and waiting >= self._parameters.longest_queue:
            raise ServingError(
                Code.UNAVAILABLE,
                f"{QUEUE_FULL} currently {waiting} batches enqueued and max_enqueued_batches is "
                f"{self._parameters.longest_queue}",
            )

    def _check_capacity(self, task: Task) -> None:
        waiting, is_open = len(self._batches), self._batches[-1].size
        length, size = self._parameters.longest_queue, self._parameters.largest_batch
        capacity = (length - waiting) * size + size - is_open
        if task.size > capacity:
            raise ServingError(
                Code.UNAVAILABLE,
                f"{QUEUE_FULL} task size is {task.size} but scheduling capacity is only {capacity} "
                f"(num_enqueued_batches={waiting}, max_enqueued_batches={length}, "
                f"open_batch_size={is_open}, max_execution_batch_size={size})",
            )


class Scheduler:
    """Hands batches of all queues to whichever thread asks, each when it is due."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._waiting: set[BatchQueue] = set()
        self._is_stopped = False
        lock = threading.Lock()
        self._sooner = threading.Condition(lock)
        self._drained = threading.Condition(lock)

    def submit(self, queue: BatchQueue, task: Task) -> None:
        """Let a task wait in a queue; raise ServingError where it cannot."""
        with self._sooner:
            before = queue.due
            queue.add(task, self.clock())
            self._waiting.add(queue)
            if queue.due < before:
                self._sooner.notify()

    def poll(self) -> tuple[BatchQueue, Batch] | float:
        """Return the batch that is due first and its queue, or else the time at which one will be."""
        with self._sooner:
            return self._poll()

    def take(self) -> tuple[BatchQueue, Batch] | None:
        """Return the next batch and its queue as soon as it is due; None after `stop`."""
        with self._sooner:
            while not self._is_stopped:
                found = self._poll()
                if isinstance(found, tuple):
                    return found
                self._sooner.wait(None if found == math.inf else max(found - self.clock(), 0))
        return None

    def finish(self, queue: BatchQueue) -> None:
        """Note that a batch that was taken has run."""
        with self._sooner:
            queue.running -= 1
            if queue.is_closed:
                self._drained.notify_all()

    def close(self, queue: BatchQueue) -> None:
        """Refuse further tasks in a queue, and return when what waits there has run."""
        with self._sooner:
            queue.is_closed = True
            self._sooner.notify()
            self._drained.wait_for(lambda: queue.is_empty and not queue.running)

    def stop(self) -> None:
        """Let the threads that take batches end."""
        with self._sooner:
            self._is_stopped = True
            self._sooner.notify_all()

    def _poll(self) -> tuple[BatchQueue, Batch] | float:
        queue = min(self._waiting, key=lambda each: each.due, default=None)
        if queue is None:
            return math.inf
        if queue.due > self.clock():
            return queue.due
        batch = queue.take()
        queue.running += 1
        if queue.is_empty:
            self._waiting.discard(queue)
        if self._waiting:
            # The taker goes to work: another has to watch what is due next.
            self._sooner.notify()
        return queue, batch


def start_threads(scheduler: Scheduler, count: int, name: str) -> list[threading.Thread]:
    """Return threads that run what the scheduler hands out until it is stopped."""
    threads = [
        threading.Thread(target=_run_batches, args=(scheduler,), name=f"{name}_{number}", daemon=True)
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    return threads


def _run_batches(scheduler: Scheduler) -> None:
    while taken := scheduler.take():
        queue, batch = taken
        queue.process(batch)
        scheduler.finish(queue)
