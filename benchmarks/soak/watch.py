"""Watches what the stack's processes own, memory and open files, and what lies in the run folder."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from running_stack import RunningStack, descendants, private_megabytes

__all__ = ["Life", "Sample", "Watch", "folder_contents"]

PAUSE_SECONDS = 1.0
OWNER = re.compile(r"_(\d+)\.db$")


@dataclass(frozen=True)
class Sample:
    """What a process owns at a moment: megabytes in memory, those that end with it, and open files.

    Memory that a fork shares counts as in memory. Whether it ends with the process changes without its doing.
    """

    at: float
    resident: float
    private: float
    descriptors: int


@dataclass
class Life:
    """One process: its program, and samples of it."""

    program: str
    pid: int
    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long it was watched."""
        return self.samples[-1].at - self.samples[0].at


@dataclass
class Watch:
    """Samples all processes of a stack until it is told to stop."""

    stack: RunningStack
    lives: dict[int, Life] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End with a last sample."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(30)

    def by_program(self) -> dict[str, list[Life]]:
        """Return the processes of each program in the order of their birth."""
        programs: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives.values():
            programs[life.program].append(life)
        return programs

    def _run(self) -> None:
        while True:
            is_last = self._stopping.is_set()
            for pid in self._pids():
                self._sample(pid)
            if is_last:
                return
            self._stopping.wait(PAUSE_SECONDS)

    def _pids(self) -> Iterator[int]:
        yield self.stack.process.pid
        try:
            yield from list(descendants(self.stack.process.pid))
        except OSError:
            # One ended while its children were listed; the next sample has the others.
            return

    def _sample(self, pid: int) -> None:
        try:
            program = _program(pid)
            sample = _sample_of(pid)
        except OSError:
            return
        life = self.lives.setdefault(pid, Life(program, pid))
        # A fork is its parent for a moment.
        life.program = program
        life.samples.append(sample)


def _sample_of(pid: int) -> Sample:
    """Return a sample; raise OSError where the process is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+)", status)
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    megabytes = int(resident[1]) / 1024 if resident else 0.0
    return Sample(time.monotonic(), megabytes, private_megabytes(pid), descriptors)


def _program(pid: int) -> str:
    title = Path(f"/proc/{pid}/comm").read_text().strip()
    if title == "nursery" or title.startswith("model-server"):
        return title
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    if "nginx: " in command:
        return "nginx master" if "master" in command else "nginx worker"
    if "pierhead.supervisor" in command:
        return "supervisor"
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    if "pierhead.service" in command or "pierhead-handler" in command:
        return "handler worker" if _is_worker(parent) else "handler master"
    return title


def _is_worker(parent: int) -> bool:
    command = Path(f"/proc/{parent}/cmdline").read_bytes()
    return b"pierhead.supervisor" not in command


def folder_contents(folder: Path) -> dict[str, int]:
    """Return the bytes of each file below a folder, by its path there.

    Without those that a living process has for itself, which a worker makes at its first request.
    """
    sizes: dict[str, int] = {}
    for file in folder.rglob("*"):
        owner = OWNER.search(file.name)
        if file.is_file() and not (owner and Path(f"/proc/{owner[1]}").exists()):
            with contextlib.suppress(FileNotFoundError):
                sizes[str(file.relative_to(folder))] = file.stat().st_size
    return sizes
