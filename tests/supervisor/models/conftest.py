"""Worlds in which the tests of the table play."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.supervisor.models.model_world import (
    NURSED,
    SERVER,
    ModelWorld,
    forked_server,
    server_and_workers,
    workers_of,
)

from pierhead.control import WorkerReady
from pierhead.supervisor.events import FromWorker


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ModelWorld]:
    world = ModelWorld(tmp_path)
    yield world
    world.close()


@pytest.fixture
def nursed(tmp_path: Path) -> ModelWorld:
    """A world in which `a` has one server, which the nursery forks."""
    world = ModelWorld(tmp_path, NURSED)
    world.preparer.shapes["a"] = forked_server
    return world


@pytest.fixture
def hooked(tmp_path: Path) -> ModelWorld:
    """A world in which `a` has a server and handler workers above it, and is loaded."""
    world = ModelWorld(tmp_path)
    world.preparer.shapes["a"] = server_and_workers
    replies = world.load("a")
    world.hear()
    world.play(world.answer(SERVER), FromWorker(WorkerReady(7, workers_of("a"))))
    assert replies == [None]
    world.spawner.signals.clear()
    return world
