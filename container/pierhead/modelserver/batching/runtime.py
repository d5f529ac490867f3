"""A platform whose models run requests together, and the runtime that does it.

Both wrap others of the same protocols, so neither doors nor registry know of it. Requests of no rows, which
in the original wait until others join them, run here as soon as a thread is free, and among themselves.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.modelserver.batching.joining import join_inputs, split_outputs
from pierhead.modelserver.batching.parameters import BatchingParameters, check_parameters
from pierhead.modelserver.batching.parameters_file import read_parameters
from pierhead.modelserver.batching.recording import BatchRecorder
from pierhead.modelserver.batching.scheduler import BatchQueue, Scheduler, start_threads
from pierhead.modelserver.batching.tasks import Share, Task, rows_of
from pierhead.modelserver.exhaustion import NO_MEMORY
from pierhead.modelserver.runtimes.base import DeferringRuntime, Platform, Runtime
from pierhead.modelserver.waiter import Waiter

__all__ = ["BatchingPlatform", "BatchingRuntime", "batching_platform"]

LOG = logging.getLogger(__name__)
FILE_OF_A_VERSION = "batching_params.pbtxt"
STEPS = 8


def batching_platform(
    platform: Platform,
    parameters_file: Path | None,
    *,
    per_model: bool,
    recorder: BatchRecorder | None = None,
) -> BatchingPlatform:
    """Return a platform that batches, with its threads started; raise ServingError for a wrong file."""
    parameters = read_parameters(parameters_file) if parameters_file else BatchingParameters()
    if parameters.num_batch_threads < 1:
        message = f"num_batch_threads must be positive; was {parameters.num_batch_threads}"
        raise ServingError(Code.INVALID_ARGUMENT, message)
    scheduler = Scheduler()
    start_threads(scheduler, parameters.num_batch_threads, parameters.thread_pool_name)
    return BatchingPlatform(platform, scheduler, parameters, per_model, recorder)


@dataclass(frozen=True)
class BatchingPlatform:
    """Loads another platform's models and batches their runs.

    With `per_model` a version's own file has the parameters, and a version without one is not batched.
    """

    platform: Platform
    scheduler: Scheduler
    parameters: BatchingParameters
    per_model: bool = False
    recorder: BatchRecorder | None = None

    def load(self, folder: Path) -> Runtime:
        """Return the model in a version's folder; raise ServingError where it cannot be loaded."""
        parameters = self._parameters_of(folder)
        if parameters is None:
            return self.platform.load(folder)
        check_parameters(parameters)
        return BatchingRuntime(self.platform.load(folder), self.scheduler, parameters, self.recorder)

    def _parameters_of(self, folder: Path) -> BatchingParameters | None:
        if not self.per_model:
            return self.parameters
        path = folder / FILE_OF_A_VERSION
        return read_parameters(path) if path.exists() else None


@dataclass(frozen=True)
class _Kind:
    """What requests have in common that can run together."""

    signature: str
    inputs: frozenset[tuple[str, str]]
    outputs: frozenset[str]
    has_rows: bool


class BatchingRuntime(DeferringRuntime):
    """Another runtime whose runs wait for company; `run` blocks its thread until its batch has run.

    With a `recorder` monitoring is told of requests and batches.
    """

    # No signature: a run waits for its batch, and nothing else may wait with it.
    steady: Container[str] = frozenset()

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        parameters: BatchingParameters,
        recorder: BatchRecorder | None = None,
    ) -> None:
        self.signatures = runtime.signatures
        self.defaults = runtime.defaults
        self.feeds = runtime.feeds
        self.definitions = runtime.definitions
        self._runtime = runtime
        self._scheduler = scheduler
        self._parameters = parameters
        self._recorder = recorder
        self._queues: dict[_Kind, BatchQueue] = {}
        self._lock = threading.Lock()

    def run(
        self,
        signature: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        in_caller: bool = False,  # noqa: ARG002 - batches have threads of their own
        timeout_ms: int = 0,
    ) -> dict[str, Array]:
        """Return the wanted outputs; raise ServingError of the queue, the joining or the joint run."""
        # A bare lock: waiting on it costs a tenth of waiting on an Event.
        gate = threading.Lock()
        gate.acquire()
        result = self.begin(signature, inputs, outputs, waiter=Waiter(gate.release), timeout_ms=timeout_ms)
        gate.acquire()
        return result()

    def begin(
        self,
        signature: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        waiter: Waiter,
        timeout_ms: int = 0,
    ) -> Callable[[], dict[str, Array]]:
        """Let a run wait in its queue; raise ServingError where it cannot."""
        deadline = self._scheduler.clock() + timeout_ms / 1000 if timeout_ms else math.inf
        enqueued = self._scheduler.clock() if self._recorder else 0.0
        task = Task(inputs, waiter, deadline=deadline, timeout_ms=timeout_ms, enqueued=enqueued)
        if self._recorder:
            self._recorder.record_task(task)
        # Inputs of a wrong dtype wait among themselves: only they should fail.
        dtypes = frozenset((name, array.dtype.str) for name, array in inputs.items())
        kind = _Kind(signature, dtypes, frozenset(outputs), task.size > 0)
        self._scheduler.submit(self._queue(kind), task)
        return partial(_wanted, task, tuple(outputs))

    def unload(self) -> None:
        """Run what waits, then give up the model."""
        with self._lock:
            queues = list(self._queues.values())
        for queue in queues:
            self._scheduler.close(queue)
        self._runtime.unload()

    def _queue(self, kind: _Kind) -> BatchQueue:
        with self._lock:
            if kind not in self._queues:
                timeout = self._parameters.batch_timeout_micros if kind.has_rows else 0
                parameters = replace(self._parameters, batch_timeout_micros=timeout)
                self._queues[kind] = BatchQueue(parameters, partial(self._process, kind))
            return self._queues[kind]

    def _process(self, kind: _Kind, batch: Sequence[Share]) -> None:
        """Run a batch and give each share its part; an error is everybody's, and who is gone gets none."""
        gone = [share for share in batch if share.task.is_gone]
        for share in gone:
            share.task.settle(share, ServingError(Code.CANCELLED, "nobody waits for this run"))
        batch = [share for share in batch if share not in gone]
        if not batch:
            return
        try:
            parts: Sequence[Mapping[str, Array] | ServingError] = self._run_together(kind, batch)
        except ServingError as refusal:
            parts = [refusal] * len(batch)
        except MemoryError:
            parts = [ServingError(Code.RESOURCE_EXHAUSTED, NO_MEMORY)] * len(batch)
        except Exception:
            LOG.exception("a batch could not be run")
            parts = [ServingError(Code.INTERNAL, "the model server failed; its log says why")] * len(batch)
        for share, part in zip(batch, parts, strict=True):
            share.task.settle(share, part)

    def _run_together(self, kind: _Kind, batch: Sequence[Share]) -> list[dict[str, Array]]:
        now = self._scheduler.clock()
        if self._recorder:
            self._recorder.record_wait(batch, now)
        timeout_ms = run_limit([share.task for share in batch], now)
        inputs = join_inputs(
            [share.inputs for share in batch], self._parameters, self.feeds.get(kind.signature, {})
        )
        sizes, rows = [share.size for share in batch], rows_of(inputs)
        if self._recorder:
            self._recorder.record_run(sum(sizes), rows)
        outputs = self._runtime.run(kind.signature, inputs, sorted(kind.outputs), timeout_ms=timeout_ms)
        return split_outputs(outputs, sizes, rows)


def _wanted(task: Task, outputs: Sequence[str]) -> dict[str, Array]:
    values = task.outputs()
    return {name: values[name] for name in outputs}


def run_limit(tasks: Sequence[Task], now: float) -> int:
    """Return the time that a joint run may take until the latest deadline, in ms; 0 is no limit.

    It is rounded up to eighths of the longest limit: a Session prepares a callable for each limit that it
    sees. Raises ServingError RESOURCE_EXHAUSTED where every deadline has passed.
    """
    latest = max(task.deadline for task in tasks)
    if latest == math.inf:
        return 0
    if latest <= now:
        message = "Run() timeout exceeded while waiting in batching queue"
        raise ServingError(Code.RESOURCE_EXHAUSTED, message)
    longest = max(task.timeout_ms for task in tasks)
    step = max(longest // STEPS, 1)
    return min(math.ceil((latest - now) * 1000 / step) * step, longest)
