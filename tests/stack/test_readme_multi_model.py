"""The README's multi-model section, run as it stands: only the port and the folder are a test's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from running_stack import CHECKOUT, wait_for

HEADING = "## Many models behind one container"
FOLDER = "build/endpoint"
SECONDS = 60


def blocks() -> list[list[str]]:
    """Return the lines of each code block of the section."""
    text = (CHECKOUT / "README.md").read_text()
    section = text.split(f"{HEADING}\n", 1)[1].split("\n## ", 1)[0]
    return [block.splitlines() for block in re.findall(r"```\n(.*?)```", section, re.DOTALL)]


def conversation() -> list[tuple[str, str]]:
    """Return each command of the second block, and what it is said to print."""
    text = "\n".join(blocks()[1])
    said = [each.partition("\n") for each in text.removeprefix("$ ").split("\n$ ")]
    return [(command, answer) for command, _, answer in said]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], int]) -> Iterator[Shell]:
    first = free_ports(40)
    shell = Shell(tmp_path_factory.mktemp("readme"), first)
    yield shell
    shell.close()


class Shell:
    """Runs commands as they stand, but for the port and the folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self._served: subprocess.Popen[str] | None = None
        self.log = folder / "log"

    def adapt(self, text: str) -> str:
        here = str(self.folder / "endpoint")
        return (
            text.replace(f"$PWD/{FOLDER}", here)
            .replace(f"…/{FOLDER}", here)
            .replace(FOLDER, here)
            .replace(":8080", f":{self.port}")
            .replace(".venv/bin/python", sys.executable)
        )

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", self.adapt(command)],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return done.stdout

    def serve(self, command: str) -> None:
        environ = {
            **os.environ,
            "SAGEMAKER_BIND_TO_PORT": str(self.port),
            "SAGEMAKER_SAFE_PORT_RANGE": f"{self.port + 1}-{self.port + 39}",
        }
        with self.log.open("w") as log:
            self._served = subprocess.Popen(
                ["sh", "-c", self.adapt(command).replace("./serve", "exec ./serve")],
                cwd=CHECKOUT,
                env=environ,
                stderr=log,
                text=True,
            )
        wait_for(lambda: "ready seconds=" in self.log.read_text(), SECONDS, self.log.read_text)

    def close(self) -> None:
        if self._served is not None:
            self._served.terminate()
            self._served.wait(30)


def test_commands_of_the_readme_do_what_it_says(shell: Shell) -> None:
    setup, build, serve = blocks()[0]
    assert setup == "make setup"
    shell.run(build)
    shell.serve(serve)

    said = [(command, shell.run(command).strip()) for command, _ in conversation()]

    assert said == [(command, shell.adapt(answer)) for command, answer in conversation()]
