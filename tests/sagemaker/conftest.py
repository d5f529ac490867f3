"""Artifacts without a real model, and a stand-in for the container's program."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Layout = Callable[..., Path]


@dataclass(frozen=True)
class FakeServe:
    """The stand-in's program, and what it has reported."""

    program: Path
    report_file: Path

    def report(self) -> dict[str, Any]:
        """Return pid, group and environment once it has started."""
        wait_until(self.report_file.exists, "the fake to start")
        found: dict[str, Any] = json.loads(self.report_file.read_text())
        return found


def wait_until(is_true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Poll until it is true; fail after so long."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


@pytest.fixture
def lay(tmp_path: Path) -> Layout:
    """Make an artifact of empty files; a keyword NAME gives the text of code/NAME.py."""

    def lay_files(*names: str, **texts: str) -> Path:
        root = tmp_path / "artifact"
        files = dict.fromkeys(names, "") | {f"code/{name}.py": text for name, text in texts.items()}
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    return lay_files


@pytest.fixture
def fake_serve(tmp_path: Path) -> FakeServe:
    source = Path(__file__).with_name("fake_serve.py").read_text(encoding="utf-8")
    program = tmp_path / "serve"
    program.write_text(f"#!{sys.executable}\n{source}", encoding="utf-8")
    program.chmod(0o755)
    return FakeServe(program, tmp_path / "report.json")


@pytest.fixture
def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
