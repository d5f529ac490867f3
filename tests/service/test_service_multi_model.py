"""The handler workers of a multi-model endpoint as programs: the shared ones, and those of single models."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.service.service_fakes import FakeModelServer, make_plan, new_fake, running
from tests.service.service_program import SECONDS, FakeSupervisor, Service, running_program, supervising

from pierhead.control import (
    HANDLER_WORKERS,
    ModelPlan,
    ServerAddress,
    ServicePlan,
    StartFailed,
    WorkerGone,
    WorkerReady,
    write_plan,
)
from pierhead.errors import Code

BODY = b'{"instances": [1.0, 2.0, 5.0]}'
TELL = """
import os

def handler(data, context):
    return f"{os.getpid()} {context.model_name} {context.grpc_port}", "text/plain"
"""
NAMED = """
print("imported")

def handler(data, context):
    return "{name}", "text/plain"
"""
TOOLKIT = """
def model_fn(model_dir):
    return None

def predict_fn(data, model):
    return data
"""
NOT_LOADED = (404, {"error": "model 'a' is not loaded"})


class Run:
    """A run folder as the supervisor keeps it."""

    def __init__(self, folder: Path, supervisor: FakeSupervisor) -> None:
        self.folder = folder
        self.supervisor = supervisor
        self.count = 0
        for name in ("loaded", "models", "metrics"):
            (folder / name).mkdir()

    def plan(self, hooks: str | None = None, **fields: Any) -> ServicePlan:
        """Return a plan, of workers with these hooks where there are any."""
        file = None
        if hooks is not None:
            self.count += 1
            code = self.folder / f"code{self.count}"
            code.mkdir()
            file = code / "inference.py"
            file.write_text(hooks)
        return make_plan(
            control_socket=self.supervisor.path,
            code=None if file is None else str(file.parent),
            hooks=None if file is None else str(file),
            **fields,
        )

    def shared(self, hooks: str | None = None, **settings: str) -> AbstractContextManager[Service]:
        """Start the shared workers."""
        plan = self.plan(
            hooks,
            servers=(),
            models=(),
            default_model="",
            settings={"SAGEMAKER_MULTI_MODEL": "true", **settings},
            socket=str(self.folder / "workers.sock"),
            loaded=str(self.folder / "loaded"),
        )
        return running_program(plan, self.folder, self.supervisor, self.folder / "log", **self._environ)

    def own(self, name: str, number: int, hooks: str, **settings: str) -> AbstractContextManager[Service]:
        """Start the workers of one model."""
        folder = self.folder / "models" / str(number)
        folder.mkdir()
        plan = self.plan(
            hooks,
            models=(ModelPlan(name, (1,)),),
            default_model=name,
            settings={"SAGEMAKER_MULTI_MODEL": "true", **settings},
            socket=str(folder / "0.sock"),
            process=f"{name}/{HANDLER_WORKERS}",
        )
        return running_program(plan, folder, self.supervisor, self.folder / f"log{number}", **self._environ)

    @property
    def _environ(self) -> dict[str, str]:
        return {"PROMETHEUS_MULTIPROC_DIR": str(self.folder / "metrics")}

    def load(self, name: str, number: int, *servers: ServerAddress) -> None:
        """Publish a model as loaded."""
        folder = self.folder / "models" / str(number)
        folder.mkdir()
        plan = make_plan(servers=servers, models=(ModelPlan(name, (1,)),), default_model=name)
        write_plan(replace(plan, settings={"SAGEMAKER_MULTI_MODEL": "true"}), folder / "plan.json")
        (self.folder / "loaded" / name).symlink_to(f"../models/{number}")

    def unload(self, name: str, number: int) -> None:
        """Withdraw a model and remove its files."""
        (self.folder / "loaded" / name).unlink()
        shutil.rmtree(self.folder / "models" / str(number))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with supervising(tmp_path / "control.sock") as supervisor:
        yield Run(tmp_path, supervisor)


def ask(service: Service, name: str) -> str:
    status, body = service.post(BODY, f"/models/{name}/invoke")
    assert status == 200, body
    return body.decode()


def answers_of_all(service: Service, name: str, pids: set[int]) -> set[str]:
    """Return what a model's hook told, once each worker has answered a request."""
    answers: set[str] = set()
    deadline = time.monotonic() + SECONDS
    while {int(answer.split()[0]) for answer in answers} != pids:
        assert time.monotonic() < deadline
        with ThreadPoolExecutor(8) as threads:
            answers |= set(threads.map(lambda _: ask(service, name), range(32)))
    return {answer.split(maxsplit=1)[1] for answer in answers}


@pytest.mark.parametrize(
    ("worker_class", "workers"), [("gevent", 1), ("gevent", 4), ("gthread", 4), ("sync", 4)]
)
def test_no_worker_answers_by_a_model_that_was_unloaded(run: Run, worker_class: str, workers: int) -> None:
    settings = {
        "SAGEMAKER_GUNICORN_WORKERS": str(workers),
        "SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class,
    }
    run.load("a", 1, ServerAddress(9001, 8001))
    with run.shared(TELL, **settings) as service:
        pids = {service.ready() for _ in range(workers)}
        assert {"a 9001"} == answers_of_all(service, "a", pids)

        run.unload("a", 1)
        refusals = [service.post(BODY, "/models/a/invoke") for _ in range(32)]
        assert [NOT_LOADED] * 32 == [(status, json.loads(body)) for status, body in refusals]

        run.load("a", 2, ServerAddress(9002, 8002))
        run.load("b", 3, ServerAddress(9003, 8003))
        assert {"a 9002"} == answers_of_all(service, "a", pids)
        assert {"b 9003"} == answers_of_all(service, "b", pids)


@pytest.fixture(scope="module")
def fake() -> FakeModelServer:
    return new_fake()


def test_models_without_hooks_get_the_default_handler_and_servers_of_their_own(
    run: Run, fake: FakeModelServer
) -> None:
    with running(fake) as address, run.shared() as service:
        service.ready()
        run.load("a", 1, address)

        assert {"predictions": [2.5, 3.0, 4.5]} == json.loads(ask(service, "a"))
    run.unload("a", 1)


def test_model_whose_server_is_away_is_503(run: Run) -> None:
    run.load("a", 1, ServerAddress(1, 1))
    with run.shared() as service:
        service.ready()
        status, body = service.post(BODY, "/models/a/invoke")

    assert 503 == status
    assert "away" in json.loads(body)["error"]


def test_hooks_that_keep_a_model_cannot_be_shared(run: Run) -> None:
    with run.shared(TOOLKIT) as service:
        assert 4 == service.process.wait(SECONDS)
        failure = run.supervisor.reports.get(timeout=SECONDS)

    assert isinstance(failure, StartFailed)
    assert "inference.py is shared by models that come and go" in failure.reason
    assert failure.reason in service.log.read_text()


def test_workers_of_two_models_have_nothing_in_common(run: Run) -> None:
    with (
        run.own("a", 1, NAMED.format(name="first")) as first,
        run.own("b", 2, NAMED.format(name="second")) as second,
    ):
        reports = [run.supervisor.reports.get(timeout=SECONDS) for _ in range(2)]
        pids = {report.process: report.pid for report in reports if isinstance(report, WorkerReady)}

        assert {"a/handler-workers", "b/handler-workers"} == pids.keys()
        assert (200, b"first") == first.post(BODY)
        assert (200, b"second") == second.post(BODY)
        assert 0 == first.stop()
        assert WorkerGone(pids["a/handler-workers"], 0, "a/handler-workers") == run.supervisor.reports.get(
            timeout=SECONDS
        )
        assert (200, b"second") == second.post(BODY)
        assert stat.S_ISSOCK(os.stat(second.socket).st_mode)
        for service, name in ((first, "a"), (second, "b")):
            lines = service.log.read_text().splitlines()
            assert any(line.endswith("imported") for line in lines)
            assert all(f" {name}/handler-workers: " in line for line in lines)
    metrics = {path.stem.rpartition("_")[2] for path in (run.folder / "metrics").iterdir()}
    assert {str(pid) for pid in pids.values()} == metrics
    assert ["plan.json"] == [path.name for path in (run.folder / "models" / "1").iterdir()]


@pytest.mark.parametrize(
    ("hooks", "code", "sentence"),
    [
        (
            "import not_there\n",
            Code.INTERNAL,
            "inference.py cannot be imported: ModuleNotFoundError: No module named 'not_there'",
        ),
        (
            "raise MemoryError('40 GB')\n",
            Code.RESOURCE_EXHAUSTED,
            "inference.py cannot be imported: MemoryError: 40 GB",
        ),
        (
            "import errno, os\nraise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))\n",
            Code.RESOURCE_EXHAUSTED,
            "inference.py cannot be imported: OSError: [Errno 12] Cannot allocate memory",
        ),
        (
            "def model_fn(model_dir):\n    raise MemoryError('40 GB')\n",
            Code.RESOURCE_EXHAUSTED,
            "model_fn failed: MemoryError: 40 GB",
        ),
        (
            "def model_fn(model_dir, context):\n    context.signature('')\n",
            Code.INTERNAL,
            "model_fn failed: ModelServerAway: the model server is away or broke off; "
            "it is being started again",
        ),
    ],
)
def test_model_whose_hooks_cannot_be_loaded_says_why_once(
    run: Run, hooks: str, code: Code, sentence: str
) -> None:
    with run.own("a", 1, hooks, SAGEMAKER_GUNICORN_WORKERS="2") as service:
        assert 4 == service.process.wait(SECONDS)
        reports = list(run.supervisor.reports.queue)

    said = [report for report in reports if isinstance(report, StartFailed)]
    assert [StartFailed("a/handler-workers", code, sentence)] == said
    assert not any(isinstance(report, WorkerReady) for report in reports)
