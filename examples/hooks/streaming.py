"""An answer that streams: one line as soon as it is made."""

from collections.abc import Iterator
from typing import IO

from pierhead.hooks import Context, ModelRequest, ModelResponse, read_request


def input_handler(data: IO[bytes], context: Context) -> ModelRequest:
    """Return the request as it is read without hooks."""
    return read_request(data, context)


def output_handler(response: ModelResponse, _context: Context) -> tuple[Iterator[str], str]:
    """Return the parts and their content type."""
    response.raise_for_status()
    return (f"data: {value}\n\n" for value in response.outputs["y"].tolist()), "text/event-stream"
