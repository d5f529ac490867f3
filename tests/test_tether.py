"""A tethered process ends when its parent is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHILD = "import sys; print('runs', flush=True); sys.stdin.read()"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-m", "pierhead.tether", sys.executable, "-c", {CHILD!r}])
"""


def test_a_command_may_have_a_directory(tmp_path: Path) -> None:
    program = "import os; print(os.getcwd())"
    command = [
        sys.executable,
        "-m",
        "pierhead.tether",
        f"--directory={tmp_path}",
        sys.executable,
        "-c",
        program,
    ]

    assert str(tmp_path) == subprocess.check_output(command, text=True, timeout=30).strip()


def test_a_tethered_command_ends_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stdout.readline() == "runs\n"

    parent.kill()
    parent.wait(10)

    # The child writes to the same pipe: it ends when the child has ended, and not before.
    assert parent.stdout.read() == ""
    parent.stdin.close()
    parent.stdout.close()
