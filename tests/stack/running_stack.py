"""The whole stack as a user runs it: `./serve` on an artifact, spoken to over HTTP alone."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

CHECKOUT = Path(__file__).resolve().parents[2]
START_SECONDS = 90.0


@dataclass(frozen=True)
class Answer:
    """What came back over HTTP."""

    status: int
    content_type: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RunningStack:
    """One `./serve` process with a base folder, a run folder and ports of its own.

    `artifact` is what it serves, None where models are loaded later.
    """

    PORTS_BEHIND = 8

    def __init__(self, artifact: Path | None, first_port: int, **environ: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ph-"))
        self.folder.chmod(0o711)
        self.port = first_port
        self.ports = range(first_port + 1, first_port + 1 + self.PORTS_BEHIND)
        self._log = self.folder / "log"
        base = self.folder / "ml"
        base.mkdir()
        if artifact is not None:
            (base / "model").symlink_to(artifact)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command(),
                env={**os.environ, **self._environ(base), **environ},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def _command(self) -> list[str]:
        """Return what is run; a subclass may wrap it."""
        return [str(CHECKOUT / "serve")]

    def _environ(self, base: Path) -> dict[str, str]:
        return {
            "SAGEMAKER_BASE_DIR": str(base),
            "PIERHEAD_RUN_DIR": str(self.run_folder),
            "SAGEMAKER_BIND_TO_PORT": str(self.port),
            "SAGEMAKER_SAFE_PORT_RANGE": f"{self.ports[0]}-{self.ports[-1]}",
        }

    @property
    def run_folder(self) -> Path:
        return self.folder / "run"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def pid_of(self, name: str) -> int:
        """Return the newest pid that the log gives for a process of the stack."""
        return int(re.findall(rf"(?<!/){re.escape(name)} is ready pid=(\d+)", self.log)[-1])

    def wait_until_ready(self) -> None:
        wait_for(self._is_ready_or_over, START_SECONDS, lambda: self.log)
        assert self.process.poll() is None, self.log

    def _is_ready_or_over(self) -> bool:
        return self.process.poll() is not None or self.ping() == 200

    def ping(self) -> int:
        """Return the status of /ping, 0 where nobody answers."""
        try:
            return self.request("GET", "/ping").status
        except (OSError, http.client.HTTPException):
            return 0

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("Content-Type", ""), response.read())
        finally:
            connection.close()

    def invoke(self, body: bytes | str, content_type: str = "application/json", **headers: str) -> Answer:
        """POST to /invocations; a header's name is written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body.encode() if isinstance(body, str) else body
        return self.request("POST", "/invocations", data, {"Content-Type": content_type, **named})

    def stop(self, number: int = signal.SIGTERM, seconds: float = 40) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


StartStack = Callable[..., RunningStack]


def wait_for(condition: Callable[[], bool], seconds: float, explain: Callable[[], str] = lambda: "") -> None:
    """Ask every 20 ms until the condition is true; fail with an explanation at the bound."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {explain()}"
        pause.wait(0.02)


def descendants(pid: int) -> Iterator[int]:
    """Yield the pids of all processes below `pid`."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))


def private_megabytes(pid: int) -> float:
    """Return the memory that ends with the process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"Private_(?:Clean|Dirty):\s+(\d+)", rollup)) / 1024
