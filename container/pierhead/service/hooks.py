"""The user's inference.py: loaded once in a worker, inspected once, refused with a sentence.

It defines `handler(data, context)`, or `input_handler(data, context)` with `output_handler(response,
context)`, or the SageMaker inference toolkit's functions; never more than one of these.
Source: the TensorFlow Serving image's contract, section Hooks; field cases C14 and C15.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from pierhead.contract.toolkit import TOOLKIT_FUNCTIONS
from pierhead.errors import HookShapeError, UserCodeError
from pierhead.service.hook_shapes import Hook, Wrap, check_hook
from pierhead.service.toolkit.hooks import ToolkitHooks, toolkit_hooks

__all__ = ["HookPair", "Hooks", "ToolkitHooks", "WholeHook", "load_hooks"]

PRIVATE_NAME = "pierhead_user_inference"
LIBRARY_FOLDER = "lib"
PARAMETERS = {
    "handler": ("data", "context"),
    "input_handler": ("data", "context"),
    "output_handler": ("response", "context"),
}
WANTED = (
    "handler(data, context), or input_handler(data, context) with output_handler(response, context), "
    "or model_fn(model_dir) with the inference toolkit's other functions"
)


@dataclass(frozen=True)
class WholeHook:
    """Hooks that answer requests by themselves."""

    handler: Hook

    def wrapped(self, wrap: Wrap) -> WholeHook:
        """Return hooks of which each function is what `wrap` makes of its name and itself."""
        return WholeHook(wrap("handler", self.handler))


@dataclass(frozen=True)
class HookPair:
    """Hooks that stand before and after the model server."""

    input_handler: Hook
    output_handler: Hook

    def wrapped(self, wrap: Wrap) -> HookPair:
        """Return hooks of which each function is what `wrap` makes of its name and itself."""
        return HookPair(
            wrap("input_handler", self.input_handler), wrap("output_handler", self.output_handler)
        )


Hooks = WholeHook | HookPair | ToolkitHooks


def load_hooks(file: Path, code: Path) -> Hooks:
    """Return the hooks that `file` defines, with `code` and `code/lib` at the front of the Python path.

    Raises UserCodeError, from the user's own exception, where the file cannot be imported, and
    HookShapeError where its functions cannot be called.
    """
    sys.path[:0] = [str(code), str(code / LIBRARY_FOLDER)]
    return find_hooks(_import_file(file), file.name)


def find_hooks(module: ModuleType, file: str) -> Hooks:
    """Return the hooks that a module defines; raise HookShapeError where it has none that can be called."""
    found = {
        name: getattr(module, name) for name in (*PARAMETERS, *TOOLKIT_FUNCTIONS) if hasattr(module, name)
    }
    if found and not found.keys() & PARAMETERS:
        return toolkit_hooks(found, file)
    for name in found.keys() & PARAMETERS:
        check_hook(name, found[name], file, PARAMETERS[name])
    if found.keys() == {"handler"}:
        return WholeHook(found["handler"])
    if found.keys() == {"input_handler", "output_handler"}:
        _refuse_generator(found["input_handler"], file)
        return HookPair(found["input_handler"], found["output_handler"])
    names = " and ".join(found) or "no hooks"
    raise HookShapeError(f"{file} defines {names}; wanted is either {WANTED}")


def _refuse_generator(input_handler: Hook, file: str) -> None:
    if inspect.isgeneratorfunction(input_handler):
        raise HookShapeError(
            f"input_handler in {file} is a generator; wanted is one that returns the whole request: "
            "handler and output_handler may stream"
        )


def _import_file(file: Path) -> ModuleType:
    name = _module_name(file)
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{file.name} is not a Python file")
    module = module_from_spec(spec)
    # dataclasses and pickle look the module of a class up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as problem:
        # Whatever ends the import ends the start: a KeyboardInterrupt would be met again by every new worker.
        raise UserCodeError(
            f"{file.name} cannot be imported: {type(problem).__name__}: {problem}"
        ) from problem
    return module


def _module_name(file: Path) -> str:
    """Return the name that other modules would import the file by, where that is no other module's.

    A module beside it that imports it back then gets this one, not a second copy.
    """
    return file.stem if file.stem.isidentifier() and file.stem not in sys.modules else PRIVATE_NAME
