"""What batching leaves on the page for Prometheus: sizes of requests and runs, and the wait for company.

Names and labels: TensorFlow Serving's contract, section 1.6. As there, a request's size is counted once for
each of its inputs, and a request that is split waits once in each of its batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pierhead.modelserver.batching.tasks import Share, Task
from pierhead.modelserver.metrics import Metrics

__all__ = ["BatchRecorder"]

# The original never fills this label in.
THREAD_POOL_NAME = ""


@dataclass(frozen=True)
class BatchRecorder:
    """Tells a server's metrics of batches; times are seconds on the scheduler's clock."""

    metrics: Metrics

    def record_task(self, task: Task) -> None:
        """Note the size of a request."""
        for _ in task.inputs:
            self.metrics.input_batch_size.record(task.size)

    def record_wait(self, batch: Sequence[Share], now: float) -> None:
        """Note how long each of a batch's shares has waited until now."""
        for share in batch:
            microseconds = (now - share.task.enqueued) * 1e6
            self.metrics.queuing_latency.record(microseconds, THREAD_POOL_NAME)

    def record_run(self, rows: int, filled: int) -> None:
        """Note a run of so many rows, filled up to a size."""
        self.metrics.padding_size.record(filled - rows, str(filled))
        self.metrics.processed_batch_size.record(filled)
        self.metrics.wrapped_run_count.add()
