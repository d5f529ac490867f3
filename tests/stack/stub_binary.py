"""Puts the stub on PATH as `tensorflow_model_server`, and reads what it has recorded."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STUB = Path(__file__).with_name("stub_model_server.py")
LAUNCHER = """\
#!/bin/sh
# A fake for tests: see {stub}.
exec {python} {stub} "$@"
"""


@dataclass(frozen=True)
class RecordedRequest:
    """A request as the stub got it; `body` is None where it was too large to keep (above 1 MB).

    `door` is "rest" or "grpc". Over gRPC, `method` is the method's name and `body` the serialized message.
    """

    door: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    length: int
    sha256: str
    pid: int

    def header(self, name: str) -> str | None:
        """Return the first header of that name, whatever its case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        assert self.body is not None
        return json.loads(self.body)


class StubBinary:
    """A folder with the stub's launcher and its records.

    `environ(DELAY="1")` is what a stack is started with: the stub first on PATH, and its knobs.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        launcher = folder / "tensorflow_model_server"
        launcher.write_text(LAUNCHER.format(python=sys.executable, stub=STUB))
        launcher.chmod(0o755)

    def environ(self, **knobs: str) -> dict[str, str]:
        return {"PATH": f"{self.folder}:{os.environ['PATH']}", "STUB_RECORDS": str(self.folder), **knobs}

    def starts(self) -> list[list[str]]:
        """Return the command line of each start, without the program."""
        return [record["arguments"] for record in self._read("starts.jsonl")]

    def requests(self) -> list[RecordedRequest]:
        """Return all requests so far in their order, also those of readiness probes."""
        return [_request(record) for record in self._read("requests.jsonl")]

    def predictions(self) -> list[RecordedRequest]:
        """Return the requests that ask for a model's answer, through either door."""
        return [each for each in self.requests() if each.method in ("POST", "Predict")]

    def forget(self) -> None:
        """Drop the requests recorded so far."""
        (self.folder / "requests.jsonl").unlink(missing_ok=True)

    def _read(self, name: str) -> list[Mapping[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _request(record: Mapping[str, Any]) -> RecordedRequest:
    text = record["body"]
    return RecordedRequest(
        door=record["door"],
        method=record["method"],
        path=record["path"],
        headers=tuple((key, value) for key, value in record["headers"]),
        body=None if text is None else base64.b64decode(text),
        length=record["length"],
        sha256=record["sha256"],
        pid=record["pid"],
    )
