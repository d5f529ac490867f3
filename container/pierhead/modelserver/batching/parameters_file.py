"""Reads BatchingParameters from a text proto.

tensorflow-serving-api ships no stub for this message, so `MESSAGES` states its facts of the wire.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format

from pierhead.errors import Code, ServingError
from pierhead.modelserver.batching.parameters import BatchingParameters
from pierhead.modelserver.declared_messages import declare_messages

__all__ = ["read_parameters"]

# With protobuf's wrappers, unset differs from zero.
WRAPPERS = {
    "Int64Value": {"value": (1, "int64")},
    "StringValue": {"value": (1, "string")},
    "BoolValue": {"value": (1, "bool")},
}
MESSAGES = WRAPPERS | {
    "BatchingParameters": {
        "max_batch_size": (1, "Int64Value"),
        "batch_timeout_micros": (2, "Int64Value"),
        "max_enqueued_batches": (3, "Int64Value"),
        "num_batch_threads": (4, "Int64Value"),
        "thread_pool_name": (5, "StringValue"),
        "allowed_batch_sizes": (6, "repeated int64"),
        "pad_variable_length_inputs": (7, "bool"),
        "enable_large_batch_splitting": (8, "BoolValue"),
        "max_execution_batch_size": (9, "Int64Value"),
    }
}
NAME_WITH_FILE = "batch_threads"


def read_parameters(path: Path) -> BatchingParameters:
    """Return the parameters of a file; raise ServingError INVALID_ARGUMENT where it cannot be read."""
    message = declare_messages("tensorflow.serving", MESSAGES)["BatchingParameters"]()
    try:
        text_format.Parse(path.read_text(), message)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{path}' ({problem})") from problem
    wrapped = {
        name: getattr(message, name).value
        for name, (_, kind) in MESSAGES["BatchingParameters"].items()
        if kind in WRAPPERS and message.HasField(name)
    }
    return BatchingParameters(
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        pad_variable_length_inputs=message.pad_variable_length_inputs,
        **{"thread_pool_name": NAME_WITH_FILE} | wrapped,
    )
