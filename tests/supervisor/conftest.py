"""What the supervisor's tests share: a folder with a path short enough for unix sockets (107 bytes)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    """Yield such a folder for all tests of a file, which nginx's own user may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)
