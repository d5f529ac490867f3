"""Version folders, and a platform over them whose loads a test can fail, count and hold up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tests.modelserver.fake_runtime import FakePlatform, FakeRuntime

from pierhead.errors import Code, ServingError
from pierhead.modelserver.registry import Registry, State


class DiskPlatform(FakePlatform):
    """Loads a folder that holds a file `model`; `at_load` is called first, with the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.at_load: Callable[[Path], object] = lambda _: None

    def load(self, folder: Path) -> FakeRuntime:
        self.at_load(folder)
        if not (folder / "model").exists():
            self.attempts.append(folder)
            raise ServingError(Code.NOT_FOUND, f"no model at {folder}")
        return super().load(folder)


class Gate:
    """Holds up whoever comes through until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self, *_: object) -> None:
        self.reached.set()
        assert self.opened.wait(30)


def put_version(base_path: Path, version: int, *, whole: bool = True) -> Path:
    folder = base_path / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    if whole:
        (folder / "model").touch()
    return folder


def states(registry: Registry, name: str) -> dict[int, State]:
    return {status.version: status.state for status in registry.statuses(name)}
