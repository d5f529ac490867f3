"""What may be set about batching, and the rules that a model's load checks.

Names, defaults and messages: TensorFlow Serving's contract, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pierhead.errors import Code, ServingError
from pierhead.settings import available_cpus

__all__ = ["BatchingParameters", "check_parameters"]


@dataclass(frozen=True)
class BatchingParameters:
    """BatchingParameters of a text proto, or the defaults without one; sizes count rows."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = field(default_factory=available_cpus)
    thread_pool_name: str = "model_server_batch_threads"
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None

    @property
    def largest_batch(self) -> int:
        """The most rows of one run, before any are added to reach an allowed size."""
        if not self.enable_large_batch_splitting or self.max_execution_batch_size is None:
            return self.max_batch_size
        return self.max_execution_batch_size

    @property
    def longest_queue(self) -> int:
        """The most batches that wait, the open one among them."""
        return max(self.max_enqueued_batches, 1)

    def allowed_size(self, rows: int) -> int:
        """Return the size to which a batch is filled up."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)


def check_parameters(parameters: BatchingParameters) -> None:
    """Raise ServingError INVALID_ARGUMENT for parameters with which no queue can be made."""
    splits, allowed = parameters.enable_large_batch_splitting, parameters.allowed_batch_sizes
    expected, length = parameters.max_batch_size, parameters.max_enqueued_batches
    last = allowed[-1] if allowed else expected
    rules = {
        f"Last entry in allowed_batch_sizes must match max_batch_size; last entry was {last}; "
        f"expected {expected}": last == expected,
        "Entries of allowed_batch_sizes must be in increasing order": list(allowed) == sorted(set(allowed)),
        f"input_batch_size_limit must be positive; was {expected}": expected > 0,
        f"batch_timeout_micros must be non-negative; was {parameters.batch_timeout_micros}": (
            parameters.batch_timeout_micros >= 0
        ),
        f"max_enqueued_batches must be positive; was {length}": length > 0 or (length == 0 and not splits),
        f"max_execution_batch_size must be positive; was {parameters.largest_batch}": (
            parameters.largest_batch > 0
        ),
        "When enable_large_batch_splitting is true, input_batch_size_limit must be greater than or equal to "
        "max_execution_batch_size.": expected >= parameters.largest_batch,
    }
    for message, is_kept in rules.items():
        if not is_kept:
            raise ServingError(Code.INVALID_ARGUMENT, message)
