"""A stack with a table of models, played with a script; what threads report is a step like others."""

from __future__ import annotations

import itertools
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.supervisor.test_stack import (
    FORKED_PID,
    FakeSpawner,
    ScriptedInbox,
    ScriptEnded,
    SpawnedProcesses,
    Step,
)

from pierhead.control import Forked, NurseryReady, ServerAddress, WorkerReady
from pierhead.errors import Code, PierheadError, ServingError
from pierhead.settings import Settings
from pierhead.supervisor.events import (
    Event,
    FromWorker,
    LoadRequested,
    UnloadRequested,
)
from pierhead.supervisor.group import Surroundings
from pierhead.supervisor.memory_use import MemoryUse
from pierhead.supervisor.models.model import PreparedModel
from pierhead.supervisor.models.preparation import Preparer
from pierhead.supervisor.models.publication import Publication
from pierhead.supervisor.models.table import ModelTable
from pierhead.supervisor.outputs import Outputs
from pierhead.supervisor.plan import NGINX, WORKERS
from pierhead.supervisor.process import ProcessSpec
from pierhead.supervisor.run_folder import RunFolder
from pierhead.supervisor.spawner import NURSERY
from pierhead.supervisor.stack import Stack

OWN = (
    ProcessSpec(WORKERS, ("/bin/workers",), stage=1),
    ProcessSpec(NGINX, ("/bin/nginx",), stage=2),
)
NURSED = (ProcessSpec(NURSERY, ("/bin/nursery",)), *OWN)
LONGEST_WAIT = 10.0
LOAD_SECONDS = 60.0
KILLED = -signal.SIGKILL
Replies = list[PierheadError | None]


def server_of(name: str) -> str:
    return f"{name}/model-server-1"


def workers_of(name: str) -> str:
    return f"{name}/{WORKERS}"


SERVER = server_of("a")


def codes(replies: Sequence[PierheadError | None]) -> list[Code | None]:
    return [reply.code if isinstance(reply, ServingError) else None for reply in replies]


class QuietSpawner(FakeSpawner):
    """Gives no pid twice, and notes whose end is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited: list[int] = []
        self._fresh = itertools.count(100)

    def spawn(self, spec: ProcessSpec) -> int | None:
        pid = super().spawn(spec)
        if pid is not None:
            pid = self.pids[spec.name] = next(self._fresh)
        return pid

    def wait_until_gone(self, leaders: Sequence[int], *_: float, **__: float) -> bool:
        self.awaited += leaders
        return True


class LastWords(Outputs):
    """The last lines of processes, as a test says them."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[str, ...]] = {}
        self.forgotten: list[str] = []

    def last_lines(self, name: str, _seconds: float = 0.0) -> tuple[str, ...]:
        return self.lines.get(name, ())

    def forget(self, name: str) -> None:
        self.forgotten.append(name)


def names_of(specs: Sequence[ProcessSpec]) -> tuple[str, ...]:
    return tuple(spec.name for spec in specs)


class FakePreparer(Preparer):
    """Prepares at once, or when a test opens the gate of a name; or fails as a test says."""

    def __init__(self, publication: Publication) -> None:
        self.gates: dict[str, threading.Event] = {}
        self.failures: dict[str, Exception] = {}
        self.shapes: dict[str, Callable[[str], Sequence[ProcessSpec]]] = {}
        self.at_sockets: Callable[[Sequence[ProcessSpec]], tuple[str, ...]] = names_of
        self.entered: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.handed_out: list[ServerAddress] = []
        self.given_back: list[ServerAddress] = []
        self.removed: list[int] = []
        self._folders = publication

    def prepare(self, number: int, name: str, _url: str) -> PreparedModel:
        self.entered.put(name)
        if name in self.gates:
            assert self.gates[name].wait(LONGEST_WAIT)
        if name in self.failures:
            raise self.failures.pop(name)
        address = ServerAddress(9000 + number, 8500 + number)
        self.handed_out.append(address)
        specs = tuple(self.shapes[name](name) if name in self.shapes else [plain_server(name)])
        return PreparedModel(
            folder=self._folders.make_folder(number),
            addresses=(address,),
            specs=specs,
            probes={server_of(name): lambda: False},
            workers=workers_of(name),
            at_sockets=self.at_sockets(specs),
        )

    def give_back(self, number: int, addresses: tuple[ServerAddress, ...]) -> None:
        self.removed.append(number)
        self.given_back += addresses
        self._folders.remove_folder(number)


def plain_server(name: str) -> ProcessSpec:
    return ProcessSpec(server_of(name), ("/bin/server",), start_seconds=LOAD_SECONDS)


def server_and_workers(name: str) -> Sequence[ProcessSpec]:
    return (plain_server(name), ProcessSpec(workers_of(name), ("/bin/workers",), stage=1))


def forked_server(name: str) -> Sequence[ProcessSpec]:
    return (ProcessSpec(server_of(name), ("--port=1",), needs=(NURSERY,), forked=True),)


class ModelWorld(SpawnedProcesses):
    """A stack, its table of models, and all that surrounds them."""

    spawner: QuietSpawner

    def __init__(
        self,
        folder: Path,
        own: Sequence[ProcessSpec] = OWN,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.run = RunFolder(folder, is_private=False)
        self.run.make_model_folders()
        self.spawner, self.inbox = QuietSpawner(), ScriptedInbox()
        self.memory: MemoryUse | None = None
        self.publication = Publication(self.run)
        self.preparer, self.outputs = FakePreparer(self.publication), LastWords()
        limit = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_TFS_WAIT_TIME_SECONDS": str(int(LOAD_SECONDS))}
        settings = Settings.from_env({**limit, **(environ or {})})
        self.table = ModelTable(
            settings,
            Surroundings(self.spawner, self.inbox.put, lambda: self.inbox.now),
            preparer=self.preparer,
            publication=self.publication,
            report=self.inbox.put,
            memory=lambda: self.memory,
            outputs=self.outputs,
        )
        self.stack = Stack(
            own,
            spawner=self.spawner,
            inbox=self.inbox,
            probes={},
            worker_count=1,
            clock=lambda: self.inbox.now,
            models=self.table,
        )
        self._make_ready([spec.name for spec in own])

    def _make_ready(self, own: Sequence[str]) -> None:
        """Make the stack's own processes ready, and forget how they came there."""
        if NURSERY in own:
            self.play(self.nursery_says(NurseryReady()))
        if WORKERS in own:
            self.play(FromWorker(WorkerReady(1)), self.answer(NGINX))
        assert self.stack.not_ready() == ""
        self.spawner.started.clear()

    def play(self, *script: Step) -> int | None:
        """Run the loop through the script; return its status, or None where it wants to go on."""
        self.inbox.script.extend(script)
        try:
            status = self.stack.run()
        except ScriptEnded:
            return None
        assert not self.inbox.script
        return status

    def hear(self, count: int = 1) -> None:
        """Let the loop take what threads report, a number of times."""
        self.play(*count * [lambda: queue.SimpleQueue.get(self.inbox, timeout=LONGEST_WAIT)])

    def hold(self, *names: str) -> None:
        """Have the preparation of models wait until `release`."""
        for name in names:
            self.preparer.gates[name] = threading.Event()

    def release(self, *names: str) -> None:
        """Let held preparations go on, and let the loop take what they report."""
        for name in names:
            self.preparer.gates[name].set()
            self.hear()

    def close(self) -> None:
        """Let all threads end."""
        for gate in self.preparer.gates.values():
            gate.set()

    def load(self, name: str) -> Replies:
        """Ask for a load; return the list that its answer will be in."""
        replies: Replies = []
        self.play(LoadRequested(name, f"/opt/ml/models/{name}/model", replies.append))
        return replies

    def unload(self, name: str) -> Replies:
        """Ask for an unload; return the list that its answer will be in."""
        replies: Replies = []
        self.play(UnloadRequested(name, replies.append))
        return replies

    def load_fully(self, *names: str) -> ModelWorld:
        for name in names:
            replies = self.load(name)
            self.hear()
            self.play(self.answer(server_of(name)))
            assert replies == [None]
        self.spawner.started.clear()
        self.spawner.signals.clear()
        return self

    def forked(self, name: str, pid: int = FORKED_PID) -> Callable[[], Event]:
        return self.nursery_says(Forked(server_of(name), pid))

    @property
    def loaded(self) -> list[str]:
        """The models that the run folder says are loaded."""
        return sorted(link.name for link in self.run.loaded.iterdir())

    @property
    def direct(self) -> list[str]:
        """The models to whose sockets nginx goes."""
        return sorted(link.name for link in self.run.direct.iterdir())
