"""Virtual environments for the other servers, made once below `build/` and kept.

Each has one server and what that needs, all pinned, and shares nothing with Pierhead's own. An environment is
complete when the list of its packages lies in it, so one that was broken off is made again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import CHECKOUT

__all__ = ["MULTI_MODEL_SERVER", "TRITON", "Peer", "Unavailable", "environment"]

FOLDER = CHECKOUT / "build" / "benchmarks"
INSTALL_SECONDS = 600


class Unavailable(Exception):
    """A server that this machine cannot run; the message says why, in a few words."""


@dataclass(frozen=True)
class Peer:
    """A server, and the packages that it is made of; none of them brings any other."""

    name: str
    packages: tuple[str, ...]


MULTI_MODEL_SERVER = Peer(
    "multi-model-server",
    (
        "multi-model-server==1.1.11",
        "model-archiver==1.0.3",
        "future==1.0.0",
        "psutil==7.2.2",
        "numpy==1.26.4",
    ),
)
# numpy 2 breaks the arrays that Triton's python backend of this release hands out.
TRITON = Peer("triton", ("nvidia-pytriton==0.7.0", "numpy==1.26.4"))


def environment(peer: Peer) -> Path:
    """Return the folder of the peer's environment, made now if need be; raise Unavailable."""
    folder, packages = FOLDER / peer.name, "\n".join(peer.packages)
    done = folder / "packages.txt"
    if not done.is_file() or done.read_text() != packages:
        shutil.rmtree(folder, ignore_errors=True)
        _make(folder, peer.packages)
        done.write_text(packages)
    return folder


def _make(folder: Path, packages: tuple[str, ...]) -> None:
    # Scripts name their interpreter by its path, so the folder has its name from the beginning.
    _run([sys.executable, "-m", "venv", str(folder)])
    flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", *flags, *packages])


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired as problem:
        raise Unavailable("its packages could not be installed in time") from problem
    except subprocess.CalledProcessError as problem:
        lines = [line for line in problem.stderr.splitlines() if line.startswith("ERROR")]
        raise Unavailable(
            f"its packages could not be installed: {(lines or ['pip failed'])[-1]}"
        ) from problem
