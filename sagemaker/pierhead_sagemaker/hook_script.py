"""What an artifact's inference.py defines, read from its text: nothing of it is run.

The rule checked is the container's: either `handler`, or `input_handler` together with `output_handler`, or
the SageMaker inference toolkit's functions. Sources: the TensorFlow Serving image's contract, section Hooks,
and SageMaker's platform contract, section 8.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pierhead.contract.toolkit import TOOLKIT_FUNCTIONS
from pierhead.errors import ArtifactError

__all__ = ["HookScript", "read_hook_script"]

HANDLER = "handler"
PAIR = ("input_handler", "output_handler")
WANTED = (
    "define handler(data, context), or both input_handler(data, context) and output_handler(data, context), "
    "or model_fn(model_dir) with the inference toolkit's other functions"
)


@dataclass(frozen=True)
class HookScript:
    """The file that defines the hooks, and those that it defines.

    `certain` is false where `from ... import *` may bring others; the container alone can tell then.
    """

    path: Path
    hooks: tuple[str, ...]
    certain: bool


def read_hook_script(path: Path) -> HookScript:
    """Return the hooks that the file defines at its top level.

    Raises ArtifactError for text that is no Python, and for hooks of a shape that the container refuses.
    """
    names = set(_names_bound(_parse(path).body))
    hooks = tuple(name for name in (HANDLER, *PAIR, *TOOLKIT_FUNCTIONS) if name in names)
    script = HookScript(path, hooks, "*" not in names)
    problem = _problem(script)
    if problem:
        raise ArtifactError(f"{path} {problem}: {WANTED}")
    return script


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise ArtifactError(f"{path}, line {error.lineno or 1}: {error.msg}") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is not Python source: {error}") from error


def _names_bound(statements: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case ast.Assign() | ast.AnnAssign(value=ast.expr()):
                yield from _targets(statement)
            case ast.If() | ast.Try() | ast.With():
                yield from _names_bound([node for node in _inner(statement) if isinstance(node, ast.stmt)])


def _targets(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _inner(statement: ast.stmt) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(statement):
        yield from ast.iter_child_nodes(child) if isinstance(child, ast.ExceptHandler) else (child,)


def _problem(script: HookScript) -> str | None:
    pair = [name for name in script.hooks if name in PAIR]
    toolkit = [name for name in script.hooks if name in TOOLKIT_FUNCTIONS]
    if toolkit and len(toolkit) < len(script.hooks):
        others = [name for name in script.hooks if name not in toolkit]
        return f"defines {' and '.join(others)} and also {' and '.join(toolkit)}"
    if toolkit:
        return None if "model_fn" in toolkit or not script.certain else f"defines no {TOOLKIT_FUNCTIONS[0]}"
    if HANDLER in script.hooks and pair:
        return f"defines {HANDLER} and also {' and '.join(pair)}"
    if not script.certain or HANDLER in script.hooks or len(pair) == len(PAIR):
        return None
    return f"defines {pair[0]} alone" if pair else "defines no hook"
