"""Tells nginx and the shared handler workers which models are loaded, by links in the run folder.

`loaded/NAME` leads to the folder of a loaded model, and `direct/NAME` too while nginx may go straight to the
sockets in it. Both read the links at each request, so that a model which has been unloaded answers nobody.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pierhead.supervisor.run_folder import LONGEST_SOCKET_PATH, RunFolder

__all__ = ["LONGEST_DIRECT_NAME", "Publication"]

# nginx names a socket by its path relative to the run folder.
LONGEST_DIRECT_NAME = LONGEST_SOCKET_PATH - len("direct//99.sock")


class Publication:
    """The links and the models' folders of one run folder."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def make_folder(self, number: int) -> Path:
        """Make the folder of a model; nginx's workers may pass through it."""
        folder = self._run.models / str(number)
        folder.mkdir(mode=0o711)
        return folder

    def publish(self, name: str, number: int) -> None:
        """Say that a model is loaded."""
        _link(self._run.loaded / name, number)

    def withdraw(self, name: str) -> None:
        """Say that a model is not loaded any more."""
        self.close_direct(name)
        (self._run.loaded / name).unlink(missing_ok=True)

    def open_direct(self, name: str, number: int) -> None:
        """Have nginx go straight to the model's sockets."""
        _link(self._run.direct / name, number)

    def close_direct(self, name: str) -> None:
        """Have nginx ask the shared handler workers."""
        (self._run.direct / name).unlink(missing_ok=True)

    def number(self, name: str) -> int | None:
        """Return the number of a model whose sockets take requests, None where there are none."""
        try:
            return int(Path(os.readlink(self._run.direct / name)).name)
        except OSError:
            return None

    def remove_folder(self, number: int) -> None:
        """Remove a model's folder and all that is in it."""
        shutil.rmtree(self._run.models / str(number), ignore_errors=True)


def _link(link: Path, number: int) -> None:
    """Make a link to a model's folder; readers see the old one or the new one."""
    fresh = link.parent.parent / f"{link.parent.name}.{number}"
    fresh.unlink(missing_ok=True)  # an earlier try may have found no room for the second step
    fresh.symlink_to(f"../models/{number}")
    fresh.replace(link)
