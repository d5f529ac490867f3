"""The layout of an artifact: where models, versions and hooks are below an unpacked model.tar.gz.

A SavedModel is a directory `.../NAME/VERSION/saved_model.pb` with an integer VERSION, anywhere below the
root; `ROOT/VERSION/saved_model.pb` is a model called `model`. Hidden entries (`.DS_Store`, `._1`) count for
nothing. Source: the TensorFlow Serving image's contract, sections Artifact and Layout of the image.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pierhead.contract.toolkit import defines_toolkit_functions
from pierhead.errors import ArtifactError

__all__ = [
    "CODE_DIRECTORY",
    "LARGEST_VERSION",
    "ROOT_MODEL_NAME",
    "Artifact",
    "Model",
    "draw_tree",
    "find_artifact",
]

CODE_DIRECTORY = "code"
ROOT_MODEL_NAME = "model"
GRAPH_FILES = ("saved_model.pb", "saved_model.pbtxt")
VERSION = re.compile(r"[0-9]{1,19}", re.ASCII)
LARGEST_VERSION = 2**63 - 1
LARGEST_TREE = 30
DEEPEST_MODEL = 8

EXPECTED = """\
  model.tar.gz
  ├── NAME/                      any name; may be left out
  │   └── 1/                     an integer version
  │       ├── saved_model.pb
  │       └── variables/
  └── code/                      optional
      ├── inference.py
      └── requirements.txt"""


@dataclass(frozen=True)
class Model:
    """A servable: its name, its base path, and the versions that are below it, ascending."""

    name: str
    base_path: Path
    versions: tuple[int, ...]


@dataclass(frozen=True)
class Artifact:
    """What an unpacked artifact holds: models by name, and its `code/` where there is one."""

    root: Path
    models: tuple[Model, ...]
    code: Path | None


def find_artifact(root: Path, program: str | None = None) -> Artifact:
    """Return the models and the code folder below `root`.

    There need be no model where `code/PROGRAM` defines the SageMaker inference toolkit's functions: it then
    loads one by itself. Raises ArtifactError, with the tree found and the tree expected, where no SavedModel
    is found or two base paths claim one name; and where something cannot be read.
    """
    try:
        return _read_artifact(root, program)
    except OSError as problem:
        raise ArtifactError(f"{problem.filename} cannot be read: {problem.strerror}") from problem


def _read_artifact(root: Path, program: str | None) -> Artifact:
    if not root.is_dir():
        raise ArtifactError(f"there is no model folder at {root}")
    models = sorted(_models_below(root, depth=0), key=lambda model: model.name)
    code = root / CODE_DIRECTORY
    file = code / program if program is not None and (code / program).is_file() else None
    if not models and (file is None or not defines_toolkit_functions(file)):
        raise ArtifactError(_explain_missing(root, file))
    _refuse_double_names(models)
    return Artifact(root, tuple(models), code if code.is_dir() else None)


def draw_tree(root: Path) -> str:
    """Return a drawing of the files below `root`, at most a screen of it."""
    lines = list(_tree_lines(root, "  "))
    shown = lines[:LARGEST_TREE]
    if len(lines) > len(shown):
        shown.append(f"  … and {len(lines) - len(shown)} more")
    return "\n".join(shown) or "  (empty)"


def _models_below(folder: Path, *, depth: int) -> Iterator[Model]:
    children = _visible_directories(folder)
    versions = {_version(child.name): child for child in children if _is_version(child)}
    if versions:
        name = ROOT_MODEL_NAME if depth == 0 else folder.name
        yield Model(name, folder, tuple(sorted(versions)))
    if depth == DEEPEST_MODEL:
        return
    for child in children:
        if child not in versions.values() and not (depth == 0 and child.name == CODE_DIRECTORY):
            yield from _models_below(child, depth=depth + 1)


def _visible_directories(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))


def _is_version(folder: Path) -> bool:
    return (
        VERSION.fullmatch(folder.name) is not None
        and _version(folder.name) <= LARGEST_VERSION
        and any((folder / name).is_file() for name in GRAPH_FILES)
    )


def _version(name: str) -> int:
    return int(name) if VERSION.fullmatch(name) else -1


def _refuse_double_names(models: list[Model]) -> None:
    for first, second in itertools.pairwise(models):
        if first.name == second.name:
            raise ArtifactError(
                f"two folders hold a model called {first.name!r}: {first.base_path} and {second.base_path}"
            )


def _explain_missing(root: Path, file: Path | None) -> str:
    advice = "".join(f"\n{line}" for line in (*_advice(root), *_code_advice(root, file)))
    return (
        f"no SavedModel found below {root}{advice}\n"
        f"Found:\n{draw_tree(root)}\n"
        f"Expected (a saved_model.pb under an integer version):\n{EXPECTED}"
    )


def _advice(root: Path) -> Iterator[str]:
    for archive in sorted(root.glob("*.tar.gz")):
        yield f"{archive.name} is still packed: its content belongs here, not the archive."
    for graph in sorted(path for name in GRAPH_FILES for path in root.rglob(name)):
        yield (
            f"{graph.relative_to(root)} is not under an integer version: "
            f"move it to {graph.parent.relative_to(root) / '1' / graph.name}."
        )


def _code_advice(root: Path, file: Path | None) -> Iterator[str]:
    if file is not None:
        yield (
            f"{file.relative_to(root)} could serve without a SavedModel if it defined model_fn(model_dir) "
            "and the other functions of the SageMaker inference toolkit."
        )


def _tree_lines(folder: Path, indent: str) -> Iterator[str]:
    for child in sorted(folder.iterdir()):
        is_directory = child.is_dir() and not child.is_symlink()
        yield f"{indent}{child.name}{'/' if is_directory else ''}"
        if is_directory:
            yield from _tree_lines(child, indent + "  ")
