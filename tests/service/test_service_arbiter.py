"""When gunicorn's master starts a worker, and when it sends one away."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

import pytest
from gunicorn.arbiter import Arbiter

from pierhead.service.workers.arbiter import HandoverArbiter
from pierhead.service.workers.stages import SharedStage, Stage


@dataclass
class FakeWorker:
    """A worker that nobody runs."""

    age: int
    pid: int
    stage: SharedStage = field(default_factory=SharedStage)


class FakeArbiter(HandoverArbiter):
    """A master that starts nothing and kills nothing."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self.WORKERS: dict[int, FakeWorker] = {}
        self.sent: list[tuple[int, int]] = []

    def spawn_worker(self) -> None:
        self.worker_age = getattr(self, "worker_age", 0) + 1
        self.WORKERS[self.worker_age] = FakeWorker(self.worker_age, self.worker_age)

    def kill_worker(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))

    def manage(self) -> None:
        self.manage_workers()

    def move(self, pid: int, stage: Stage) -> None:
        self.WORKERS[pid].stage.move_to(stage)


def started(count: int) -> FakeArbiter:
    arbiter = FakeArbiter(count)
    arbiter.manage()
    for pid in list(arbiter.WORKERS):
        arbiter.move(pid, Stage.READY)
    arbiter.manage()
    return arbiter


@pytest.mark.parametrize(
    ("is_master", "raised"), [(False, SystemExit), (True, KeyboardInterrupt)], ids=["worker", "master"]
)
def test_keyboard_interrupt_ends_a_worker_without_the_masters_farewell(
    is_master: bool, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Arbiter) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Arbiter, "spawn_worker", interrupt)
    arbiter = FakeArbiter(1)
    arbiter.pid = os.getpid() if is_master else os.getppid()

    with pytest.raises(raised):
        HandoverArbiter.spawn_worker(arbiter)


def test_as_many_workers_are_started_as_are_wanted() -> None:
    assert [1, 2, 3] == sorted(started(3).WORKERS)


def test_a_retiring_worker_stays_until_its_successor_is_ready() -> None:
    arbiter = started(2)
    arbiter.move(2, Stage.RETIRING)

    arbiter.manage()
    arbiter.manage()

    assert [1, 2, 3] == sorted(arbiter.WORKERS)
    assert [] == arbiter.sent

    arbiter.move(3, Stage.READY)
    arbiter.manage()
    arbiter.manage()

    assert [(2, signal.SIGTERM)] == arbiter.sent
    del arbiter.WORKERS[2]
    arbiter.manage()
    assert [1, 3] == sorted(arbiter.WORKERS)


def test_one_worker_is_replaced_at_a_time() -> None:
    arbiter = started(3)
    for pid in (1, 2, 3):
        arbiter.move(pid, Stage.RETIRING)

    arbiter.manage()
    assert 4 == len(arbiter.WORKERS)

    arbiter.move(4, Stage.READY)
    arbiter.manage()
    assert [(1, signal.SIGTERM)] == arbiter.sent

    arbiter.manage()
    assert [1, 2, 3, 4, 5] == sorted(arbiter.WORKERS)
    arbiter.manage()
    assert [(1, signal.SIGTERM)] == arbiter.sent


def test_a_dead_worker_is_replaced_at_once() -> None:
    arbiter = started(2)
    del arbiter.WORKERS[1]

    arbiter.manage()

    assert [2, 3] == sorted(arbiter.WORKERS)


def test_the_oldest_go_when_there_are_too_many() -> None:
    arbiter = started(2)
    arbiter.spawn_worker()
    arbiter.spawn_worker()

    arbiter.manage()
    arbiter.manage()

    assert [(1, signal.SIGTERM), (2, signal.SIGTERM)] == arbiter.sent
