"""The functions of the SageMaker inference toolkit: which there are, and whether a file defines them.

A file is read, never run: the supervisor decides by it what to start. Source: SageMaker's platform contract,
section 8.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["TOOLKIT_FUNCTIONS", "defines_toolkit_functions"]

TOOLKIT_FUNCTIONS = (
    "model_fn",
    "input_fn",
    "predict_fn",
    "output_fn",
    "transform_fn",
    "pre_model_fn",
    "model_warmup_fn",
)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def defines_toolkit_functions(file: Path) -> bool:
    """Return whether a file defines, assigns or imports one of the functions.

    So does a file that cannot be parsed, as far as can be told: who imports it says what is wrong with it.
    """
    try:
        module = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(name in TOOLKIT_FUNCTIONS for name in _bound_names(module))


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a module binds; what stands in functions and classes is not the module's."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield child.name
            case ast.alias():
                yield child.asname or child.name
            case ast.Name(ctx=ast.Store()):
                yield child.id
        if not isinstance(child, Definition):
            yield from _bound_names(child)
