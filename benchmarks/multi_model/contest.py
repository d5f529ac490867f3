"""The servers that take part; one that cannot be had, or that fails, drops out with its reason."""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from benchmarks.multi_model.endpoint import Endpoint, Refused
from benchmarks.multi_model.environments import Unavailable

__all__ = ["Contest"]

FAILURES = (
    OSError,
    RuntimeError,
    Refused,
    Unavailable,
    http.client.HTTPException,
    subprocess.SubprocessError,
)


@dataclass
class Contest:
    """Runs something for each server in turn."""

    stack: ExitStack
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    def enter(self, title: str, server: AbstractContextManager[Endpoint]) -> None:
        """Start a server, which runs until the stack ends."""
        try:
            self.endpoints[title] = self.stack.enter_context(server)
        except FAILURES as problem:
            self._drop(title, problem)

    def each(self, act: Callable[[str, Endpoint], None]) -> None:
        """Act for each server that is still there."""
        for title, endpoint in list(self.endpoints.items()):
            try:
                act(title, endpoint)
            except FAILURES as problem:
                self._drop(title, problem)

    def _drop(self, title: str, problem: Exception) -> None:
        said = problem.stderr if isinstance(problem, subprocess.CalledProcessError) else None
        lines = (said.decode() if isinstance(said, bytes) else str(problem)).strip().splitlines()
        kind = "" if isinstance(problem, Unavailable) else f"{type(problem).__name__}: "
        self.dropped[title] = kind + (lines[-1] if lines else "nothing was said")
        self.endpoints.pop(title, None)
