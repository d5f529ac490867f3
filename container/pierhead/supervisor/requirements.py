"""Installs an artifact's requirements.txt where only its own hooks see it.

The packages go into a virtual environment in the run folder that is laid over the stack's: what is there
already counts as installed, what is added or changed stays out of the stack's own environment. So a read-only
image works, and no requirement can break the supervisor or the model servers.
"""

from __future__ import annotations

import logging
import site
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Requirements", "find_requirements", "make_environment", "pip_command"]

PIP_OPTIONS = (
    "--disable-pip-version-check",
    "--no-input",
    "--root-user-action=ignore",
    "--retries=2",
    "--timeout=10",
    "--quiet",
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Requirements:
    """What hooks need: a file for pip, or a folder of packages that the artifact brings."""

    file: Path | None
    library: Path | None


def find_requirements(code: Path | None) -> Requirements:
    """Return what the code folder asks for.

    `lib/` wins over requirements.txt. Source: the TensorFlow Serving image's contract, Artifact.
    """
    if code is None:
        return Requirements(None, None)
    file, library = code / "requirements.txt", code / "lib"
    if library.is_dir():
        for ignored in (file, library / "requirements.txt"):
            if ignored.is_file():
                log.warning(
                    "%s is not installed: code/lib/ is used as it is", ignored.relative_to(code.parent)
                )
        return Requirements(None, library)
    return Requirements(file if file.is_file() else None, None)


def make_environment(folder: Path) -> Path:
    """Make an empty environment laid over this process's own; return its Python."""
    venv.EnvBuilder(symlinks=True, with_pip=False, clear=True).create(folder)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    lines = (f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "stack.pth").write_text("".join(lines))
    return python


def pip_command(python: Path, file: Path) -> tuple[str, ...]:
    """Return the command that installs a requirements file; pip's own variables stay in force.

    Paths in the file are relative to its folder, whose whole path nobody knows beforehand.
    """
    tether = (sys.executable, "-m", "pierhead.tether", f"--directory={file.absolute().parent}")
    return (*tether, str(python), "-m", "pip", "install", *PIP_OPTIONS, "-r", str(file.absolute()))
