"""Whether a function of the user's can be called as it will be: checked once, before the first request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from pierhead.errors import HookShapeError

__all__ = ["Hook", "Wrap", "check_hook", "takes"]

Hook = Callable[..., Any]
Wrap = Callable[[str, Hook], Hook]


def check_hook(name: str, hook: Any, file: str, parameters: Sequence[str]) -> None:
    """Raise HookShapeError, with what was found and what is wanted, for a hook that cannot be called so."""
    wanted = f"wanted is {name}({', '.join(parameters)})"
    if not callable(hook):
        raise HookShapeError(f"{name} in {file} is no function; {wanted}")
    if _is_async(hook):
        raise HookShapeError(
            f"{name} in {file} is async, and hooks are called without an event loop; {wanted}"
        )
    if not takes(hook, len(parameters)):
        raise HookShapeError(f"{file} defines {name}{inspect.signature(hook)}; {wanted}")


def takes(hook: Hook, count: int) -> bool:
    """Return whether the hook can be called with so many arguments, as far as can be told."""
    try:
        signature = inspect.signature(hook)
    except ValueError:
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _is_async(hook: Hook) -> bool:
    called = (hook, getattr(type(hook), "__call__", None))  # noqa: B004 - the method of an instance
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called)
