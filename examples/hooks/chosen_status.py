"""A request that the caller must mend is refused with 422, and says so."""

import json
from typing import IO

from pierhead.hooks import Context, HookError, ModelResponse


def input_handler(data: IO[bytes], _context: Context) -> str:
    """Return a predict request for {"celsius": 20.5}."""
    try:
        celsius = float(json.load(data)["celsius"])
    except (KeyError, TypeError, ValueError) as problem:
        raise HookError('send {"celsius": a number}', status=422) from problem
    return json.dumps({"instances": [celsius]})


def output_handler(response: ModelResponse, _context: Context) -> tuple[bytes, str]:
    """Return body and content type."""
    response.raise_for_status()
    return response.content, "application/json"
