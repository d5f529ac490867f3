"""Whether a server is as well after a test as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from tests.modelserver.running_server import RunningServer

MORE_THREADS = 40
MORE_MEGABYTES = 700
SECONDS = 5


@dataclass(frozen=True)
class Wellness:
    """Looks at a server."""

    server: RunningServer

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Fail unless the server still answers afterwards, with few more threads and little more memory."""
        self._assert_answers()
        threads, megabytes = self._figure("Threads"), self._figure("VmRSS") >> 10
        yield
        self._assert_answers()
        assert self._figure("Threads") <= threads + MORE_THREADS
        assert self._figure("VmRSS") >> 10 <= megabytes + MORE_MEGABYTES

    def _assert_answers(self) -> None:
        status = requests.get(self.server.url("/v1/models/half"), timeout=SECONDS)
        predicted = requests.post(
            self.server.url("/v1/models/half:predict"), b'{"instances": [1]}', timeout=SECONDS
        )

        assert (status.status_code, predicted.json()) == (200, {"predictions": [2.5]})

    def _figure(self, name: str) -> int:
        lines = Path(f"/proc/{self.server.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
