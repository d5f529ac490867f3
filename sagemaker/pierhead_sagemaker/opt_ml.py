"""The `/opt/ml` tree that a container of a single model finds, laid out in a private folder.

`ml/model` holds the unpacked archive, or is a symbolic link to the folder that the user named: a model of
gigabytes is not copied to be tried. `run/` takes the container's sockets and generated files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pierhead.errors import ArtifactError
from pierhead_sagemaker.artifacts import unpack_artifact

__all__ = ["OptMl", "lay_tree", "private_folder"]


@dataclass(frozen=True)
class OptMl:
    """The folders of one container: its base directory, its model, and where it keeps its own files."""

    base: Path
    model: Path
    run: Path


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder of our own, and remove it with all that is in it at the end."""
    with tempfile.TemporaryDirectory(prefix="pierhead-") as name:
        folder = Path(name)
        # Started by root, nginx's workers run as another user who must pass through to the sockets; the
        # folder still cannot be listed and its name cannot be guessed.
        folder.chmod(0o711)
        yield folder


def lay_tree(artifact: Path, folder: Path) -> OptMl:
    """Lay the tree for an artifact, a folder or an archive, below `folder`.

    `OptMl.model` is the user's own folder where there is one, so that messages and samples name it.
    Raises ArtifactError where the artifact is not there or cannot be unpacked.
    """
    base, run = folder / "ml", folder / "run"
    base.mkdir()
    run.mkdir()
    model = base / "model"
    if artifact.is_dir():
        model.symlink_to(artifact.absolute(), target_is_directory=True)
        return OptMl(base, artifact.absolute(), run)
    if not artifact.is_file():
        raise ArtifactError(f"there is no file or folder at {artifact}")
    model.mkdir()
    unpack_artifact(artifact, model)
    return OptMl(base, model, run)
