"""Files of TFRecords, read by TensorFlow, which checks their sums."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from pierhead.errors import Code, ServingError

__all__ = ["read_records"]


def read_records(file: Path) -> Iterator[bytes]:
    """Yield the records of a file; raise ServingError DATA_LOSS where it is damaged or of another format."""
    try:
        yield from tf.compat.v1.io.tf_record_iterator(str(file))
    except tf.errors.OpError as problem:
        message = f"{problem.message}. Please verify your warmup data is in TFRecord format."
        raise ServingError(Code.DATA_LOSS, message) from problem
