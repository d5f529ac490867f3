"""What inference.py may import: complete, light, and typed."""

from __future__ import annotations

import subprocess
import sys
from typing import IO

import pierhead.hooks
from pierhead.hooks import (
    Context,
    Handler,
    InputHandler,
    OutputHandler,
    PredictBody,
    Result,
    read_request,
    write_answer,
)


def streaming(data: IO[bytes], context: Context) -> Result:
    return (line for line in data), "text/plain"


def reading(data: IO[bytes], context: Context) -> PredictBody:
    return {"x": [1.0]}


def taking_text(data: str, context: Context) -> Result:
    return data


# mypy is the test of these: it also refuses an `ignore` that nothing needs.
WHOLE: Handler = streaming
BEFORE: tuple[InputHandler, ...] = (reading, read_request)
AFTER: OutputHandler = write_answer
WRONG_INPUT: Handler = taking_text  # type: ignore[assignment]
WRONG_RESULT: Handler = read_request  # type: ignore[assignment]


def test_every_public_name_is_there_and_sorted() -> None:
    assert sorted(pierhead.hooks.__all__) == pierhead.hooks.__all__
    assert all(hasattr(pierhead.hooks, name) for name in pierhead.hooks.__all__)


def test_tensorflow_is_not_imported() -> None:
    program = "import sys, pierhead.hooks; sys.exit('tensorflow' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
