"""What `inference.py` may import from Pierhead; all else here may change from one version to the next.

    from pierhead.hooks import Context, HookError, ModelResponse, Result

    def output_handler(response: ModelResponse, context: Context) -> Result: ...

- `HookError` answers a request with a status of your choice.
- `read_request` and `write_answer` are what requests without hooks get, as functions.
- `Context`, `ModelRequest` and `ModelResponse` are what hooks get; `Handler`, `InputHandler` and
  `OutputHandler` are how they are called, and `Result` and `PredictBody` what they may return.

TensorFlow is never imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, Any, Protocol, TypeAlias

from pierhead.service.context import Context
from pierhead.service.conversion import ModelRequest, read_request, write_answer
from pierhead.service.hook_errors import HookError
from pierhead.service.response import ModelResponse, ResponseError

__all__ = [
    "Body",
    "Context",
    "Handler",
    "HookError",
    "InputHandler",
    "ModelRequest",
    "ModelResponse",
    "OutputHandler",
    "PredictBody",
    "ResponseError",
    "Result",
    "read_request",
    "write_answer",
]

Whole: TypeAlias = str | bytes | bytearray | memoryview
# An iterator's parts leave one by one: the answer streams.
Body: TypeAlias = Whole | Iterator[str] | Iterator[bytes] | Iterator[str | bytes]
# The Content-Type may be None, or left out with the tuple: it is then what the caller's Accept asks for.
Result: TypeAlias = Body | tuple[Body, str | None]
# A predict request as JSON, arrays or nested lists by the names of the model's inputs, or a request as read.
PredictBody: TypeAlias = Whole | Mapping[str, Any] | ModelRequest


class Handler(Protocol):
    """`handler(data, context)`: answers a request by itself."""

    def __call__(self, data: IO[bytes], context: Context, /) -> Result:
        """Return the answer to the request whose body is `data`."""
        ...


class InputHandler(Protocol):
    """`input_handler(data, context)`: makes a predict request of a body."""

    def __call__(self, data: IO[bytes], context: Context, /) -> PredictBody:
        """Return what the model is asked."""
        ...


class OutputHandler(Protocol):
    """`output_handler(response, context)`: makes the answer of the model's."""

    def __call__(self, response: ModelResponse, context: Context, /) -> Result:
        """Return the answer; `response` may also be a refusal."""
        ...
