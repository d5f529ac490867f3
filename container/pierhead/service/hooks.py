"""The user's inference.py: loaded once in a worker, inspected once, refused with a sentence.

It defines `handler(data, context)`, or `input_handler(data, context)` with `output_handler(response,
context)`, never both.
Source: the TensorFlow Serving image's contract, section Hooks; field cases C14 and C15.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pierhead.errors import HookShapeError, UserCodeError

__all__ = ["HookPair", "Hooks", "WholeHook", "load_hooks"]

Hook = Callable[[Any, Any], Any]
PRIVATE_NAME = "pierhead_user_inference"
LIBRARY_FOLDER = "lib"
PARAMETERS = {
    "handler": ("data", "context"),
    "input_handler": ("data", "context"),
    "output_handler": ("response", "context"),
}
WANTED = "handler(data, context), or input_handler(data, context) with output_handler(response, context)"


@dataclass(frozen=True)
class WholeHook:
    """Hooks that answer requests by themselves."""

    handler: Hook


@dataclass(frozen=True)
class HookPair:
    """Hooks that stand before and after the model server."""

    input_handler: Hook
    output_handler: Hook


Hooks = WholeHook | HookPair


def load_hooks(file: Path, code: Path) -> Hooks:
    """Return the hooks that `file` defines, with `code` and `code/lib` at the front of the Python path.

    Raises UserCodeError, from the user's own exception, where the file cannot be imported, and
    HookShapeError where its functions cannot be called.
    """
    sys.path[:0] = [str(code), str(code / LIBRARY_FOLDER)]
    return find_hooks(_import_file(file), file.name)


def find_hooks(module: ModuleType, file: str) -> Hooks:
    """Return the hooks that a module defines; raise HookShapeError where it has none that can be called."""
    found = {name: getattr(module, name) for name in PARAMETERS if hasattr(module, name)}
    for name, hook in found.items():
        _refuse_uncallable(name, hook, file)
    if found.keys() == {"handler"}:
        return WholeHook(found["handler"])
    if found.keys() == {"input_handler", "output_handler"}:
        return HookPair(found["input_handler"], found["output_handler"])
    names = " and ".join(found) or "no hooks"
    raise HookShapeError(f"{file} defines {names}; wanted is either {WANTED}")


def _import_file(file: Path) -> ModuleType:
    spec = spec_from_file_location(PRIVATE_NAME, file)
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{file.name} is not a Python file")
    module = module_from_spec(spec)
    # dataclasses and pickle look the module of a class up by its name.
    sys.modules[PRIVATE_NAME] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        raise UserCodeError(
            f"{file.name} cannot be imported: {type(problem).__name__}: {problem}"
        ) from problem
    return module


def _refuse_uncallable(name: str, hook: Any, file: str) -> None:
    wanted = f"{name}({', '.join(PARAMETERS[name])})"
    if not callable(hook):
        raise HookShapeError(f"{name} in {file} is no function; wanted is {wanted}")
    try:
        signature = inspect.signature(hook)
    except ValueError:
        return
    try:
        signature.bind(None, None)
    except TypeError:
        raise HookShapeError(f"{file} defines {name}{signature}; wanted is {wanted}") from None
