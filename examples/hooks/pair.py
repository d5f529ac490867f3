"""Texts in, texts out: a number on each line, and the model's answer on the line of its own."""

import json
from typing import IO

from pierhead.hooks import Context, ModelResponse


def input_handler(data: IO[bytes], context: Context) -> str | bytes:
    """Return a predict request."""
    if context.request_content_type == "text/plain":
        return json.dumps({"instances": [float(line) for line in data.read().splitlines()]})
    return data.read()


def output_handler(response: ModelResponse, context: Context) -> tuple[str | bytes, str]:
    """Return body and content type."""
    if response.status_code != 200:
        raise ValueError(response.content.decode())
    if context.accept_header == "text/plain":
        return "\n".join(map(str, response.json()["predictions"])), "text/plain"
    return response.content, "application/json"
