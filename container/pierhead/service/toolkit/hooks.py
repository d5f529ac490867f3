"""The SageMaker inference toolkit's functions in inference.py: which belong together, and how each is called.

Every function may take the context as a last argument more. Source: SageMaker's platform contract, section 8.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pierhead.errors import HookShapeError
from pierhead.service.hook_shapes import Hook, Wrap, check_hook, takes

__all__ = ["ToolkitHooks", "toolkit_hooks"]

PARAMETERS = {
    "model_fn": ("model_dir",),
    "input_fn": ("input_data", "content_type"),
    "predict_fn": ("data", "model"),
    "output_fn": ("prediction", "accept"),
    "transform_fn": ("model", "input_data", "content_type", "accept"),
    "pre_model_fn": ("model_dir",),
    "model_warmup_fn": ("model_dir", "model"),
}
STEPS = ("input_fn", "predict_fn", "output_fn")


@dataclass(frozen=True)
class ToolkitHooks:
    """The functions by name; each takes the context last, whether the user's does or not."""

    file: str
    functions: Mapping[str, Hook]

    def wrapped(self, wrap: Wrap) -> ToolkitHooks:
        """Return hooks of which each function is what `wrap` makes of its name and itself."""
        return ToolkitHooks(self.file, {name: wrap(name, hook) for name, hook in self.functions.items()})


def toolkit_hooks(found: Mapping[str, Any], file: str) -> ToolkitHooks:
    """Return the functions; raise HookShapeError where they do not belong together or cannot be called."""
    if "model_fn" not in found:
        raise HookShapeError(f"{file} defines {' and '.join(found)}, but no model_fn(model_dir)")
    steps = [name for name in STEPS if name in found]
    if "transform_fn" in found and steps:
        raise HookShapeError(
            f"{file} defines transform_fn and {' and '.join(steps)}; wanted is either transform_fn, "
            f"or some of {', '.join(STEPS)}"
        )
    return ToolkitHooks(file, {name: _with_context(name, hook, file) for name, hook in found.items()})


def _with_context(name: str, hook: Any, file: str) -> Hook:
    parameters = PARAMETERS[name]
    if _takes_context(hook, len(parameters)):
        check_hook(name, hook, file, (*parameters, "context"))
        return hook  # type: ignore[no-any-return]  # it is callable
    check_hook(name, hook, file, parameters)
    return lambda *values: hook(*values[:-1])


def _takes_context(hook: Any, count: int) -> bool:
    """Return whether what follows the promised arguments is the context, and no default of the user's."""
    if not callable(hook) or not takes(hook, count + 1):
        return False
    if not takes(hook, count):
        return True
    try:
        names = list(inspect.signature(hook).parameters)
    except ValueError:
        return False
    return names[count : count + 1] == ["context"]
