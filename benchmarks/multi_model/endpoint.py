"""A multi-model server as SageMaker sees it: an address, and models to load, invoke and unload."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import HttpLoad
from benchmarks.processes import family
from benchmarks.servers import running

__all__ = ["Endpoint", "Refused", "Start", "invoke_path", "names_of_models", "serving"]

ANSWER_SECONDS = 120.0
JSON = "application/json"
READY_SECONDS = 60.0


class Refused(Exception):
    """An answer other than 200."""


def names_of_models(count: int) -> list[str]:
    """Return names that every server takes."""
    return [f"model{number}" for number in range(count)]


def invoke_path(name: str) -> str:
    """Return the path to which requests for a model go."""
    return f"/models/{name}/invoke"


@dataclass(frozen=True)
class Endpoint:
    """A server that runs; `url` gives the folder of a model by its name, as a load request says it.

    `body_file` holds a request for half_plus_two of 1, 2 and 5, as this server reads it.
    """

    title: str
    pid: int
    port: int
    body_file: Path
    url: Callable[[str], str]

    def load_model(self, name: str) -> float:
        """Load a model and return the seconds until the answer."""
        document = {"model_name": name, "url": self.url(name)}
        return self._timed("POST", "/models", json.dumps(document).encode())

    def unload_model(self, name: str) -> float:
        """Unload a model and return the seconds until the answer."""
        return self._timed("DELETE", f"/models/{name}", b"")

    def check_model(self, name: str) -> None:
        """Invoke a model; raise Refused where its answer is not half of each number, plus two."""
        answer = self.request("POST", invoke_path(name), self.body_file.read_bytes())
        if not all(number in answer for number in (b"2.5", b"3.0", b"4.5")):
            raise Refused(f"{self.title} answered {answer[:200]!r}")

    def http_load(self, names: list[str], clients: int, seconds: float) -> HttpLoad:
        """Return a load of requests that go to the models in turn."""
        first, *others = (invoke_path(name) for name in names)
        return HttpLoad(self.port, first, str(self.body_file), JSON, clients, seconds, tuple(others))

    def processes(self) -> list[int]:
        """Return the pids of the server and of all below it."""
        return family(self.pid)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the answer's body; raise Refused where its status is not 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": JSON})
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise Refused(f"{self.title}: {method} {path}: {response.status} {answer[:300]!r}")
        return answer

    def wait_until_ready(self) -> None:
        """Wait for a good answer to /ping; raise the last problem when none came in time."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                self.request("GET", "/ping")
                return
            except (OSError, http.client.HTTPException, Refused):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _timed(self, method: str, path: str, body: bytes) -> float:
        start = time.perf_counter()
        self.request(method, path, body)
        return time.perf_counter() - start


@dataclass(frozen=True)
class Start:
    """How a server is started, and what its endpoint will be; `title` is its column."""

    title: str
    command: list[str]
    environ: dict[str, str]
    folder: Path
    port: int
    body: dict[str, object]
    url: Callable[[str], str]


@contextmanager
def serving(start: Start) -> Iterator[Endpoint]:
    """Run a server in its folder until the block ends; yield it when it is ready."""
    body_file = start.folder / "request.json"
    body_file.write_text(json.dumps(start.body))
    with running(start.command, start.port, start.environ, start.folder) as pid:
        endpoint = Endpoint(start.title, pid, start.port, body_file, start.url)
        endpoint.wait_until_ready()
        yield endpoint
