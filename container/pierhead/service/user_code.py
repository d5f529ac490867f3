"""The user's exceptions, as the user should read them: without our frames, and with a message."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

__all__ = ["describe_exception", "explain_failure", "format_exception"]

OUR_FILES = str(Path(__file__).parent)
IMPORT_MACHINERY = "<frozen importlib"


def describe_exception(exception: BaseException) -> str:
    """Return the exception's message, or its type's name where the message alone says nothing."""
    name = type(exception).__name__
    return f"{name}: {exception}" if isinstance(exception, SystemExit) else str(exception) or name


def format_exception(exception: BaseException) -> str:
    """Return the traceback from the first frame of the user's code on."""
    frames = _user_frames(exception.__traceback__)
    return "".join(traceback.format_exception(type(exception), exception, frames)).rstrip("\n")


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def _is_ours(filename: str) -> bool:
    return filename.startswith((OUR_FILES, IMPORT_MACHINERY))


def explain_failure(problem: BaseException) -> str:
    """Return the user's traceback, where there is one, and the sentence that says what failed."""
    cause = problem.__cause__
    return str(problem) if cause is None else f"{problem}\n{format_exception(cause)}"
