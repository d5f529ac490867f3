"""The user's functions, called; and their exceptions, as the user should read them: without our frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from itertools import dropwhile
from pathlib import Path
from types import TracebackType
from typing import Any

from greenlet import GreenletExit

from pierhead.errors import PierheadError, RequestEnded
from pierhead.service.hook_errors import translate_exception

__all__ = ["call_user_code", "explain_failure", "format_exception"]

OUR_FILES = str(Path(__file__).parent)
IMPORT_MACHINERY = "<frozen importlib"
# These are raised in the user's code from outside, to end a request or its greenlet.
OUR_INTERRUPTIONS = (RequestEnded, GreenletExit)


def call_user_code(function: Callable[..., Any], *values: Any) -> Any:
    """Return what the function returns; raise UserCodeError for what it raises.

    Our own exceptions pass: a conversion that was called from a hook refuses as it does without hooks.
    """
    try:
        return function(*values)
    except (PierheadError, *OUR_INTERRUPTIONS):
        raise
    except BaseException as problem:
        # A KeyboardInterrupt would end the worker, a gevent.Timeout reach nobody: the request alone fails.
        raise translate_exception(problem) from problem


def format_exception(exception: BaseException) -> str:
    """Return the traceback from the first frame of the user's code on."""
    frames = next(iter(_user_frames(exception)), None)
    return "".join(traceback.format_exception(type(exception), exception, frames)).rstrip("\n")


def explain_failure(problem: BaseException) -> str:
    """Return the sentence that says what failed, and the user's traceback, where there is one."""
    source = problem if _user_frames(problem) else problem.__cause__
    return str(problem) if source is None else f"{problem}\n{format_exception(source)}"


def _user_frames(exception: BaseException) -> list[TracebackType]:
    """Return the frames below our outermost ones: what called us counts no more than we do."""
    frames = _frames(exception.__traceback__)
    ours = list(dropwhile(lambda frame: not _is_ours(frame), frames))
    return list(dropwhile(_is_ours, ours))


def _frames(innermost: TracebackType | None) -> list[TracebackType]:
    frames = []
    while innermost is not None:
        frames.append(innermost)
        innermost = innermost.tb_next
    return frames


def _is_ours(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith((OUR_FILES, IMPORT_MACHINERY))
