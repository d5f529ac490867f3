"""One run: a stack, its clients, its killer and its watch, from the start to a clean stop."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from artifacts import artifact_with_hooks
from benchmarks.soak.clients import Crowd, Outcome
from benchmarks.soak.kills import Kill, Killer
from benchmarks.soak.watch import Life, Watch, folder_contents
from running_stack import RunningStack, descendants

__all__ = ["Plan", "Run", "perform"]

# The conversion that requests without hooks get, and an answer in parts where the caller asks for one.
HOOKS = """
    from pierhead.hooks import read_request as input_handler
    from pierhead.hooks import write_answer


    def output_handler(response, context):
        body, content_type = write_answer(response, context)
        if "stream=yes" not in context.custom_attributes:
            return body, content_type
        return (body[start : start + 4096] for start in range(0, len(body), 4096)), content_type
    """
QUIET_SECONDS = 2.0


@dataclass(frozen=True)
class Plan:
    """What a run is made of; times are in seconds."""

    name: str
    has_hooks: bool
    seconds: float
    seed: int
    clients: int = 6
    kill_every: float = 10.0
    servers: int = 3
    workers: int = 2

    @property
    def environ(self) -> dict[str, str]:
        """The settings of the stack."""
        return {
            "SAGEMAKER_TFS_INSTANCE_COUNT": str(self.servers),
            "SAGEMAKER_GUNICORN_WORKERS": str(self.workers),
        }


@dataclass(frozen=True)
class Run:
    """What a run has shown."""

    plan: Plan
    began: float
    seconds: float
    outcomes: list[Outcome]
    kills: list[Kill]
    lives: dict[str, list[Life]]
    files_warm: dict[str, int]
    files_at_the_end: dict[str, int]
    exit_status: int
    stop_seconds: float
    orphans: list[int]
    left_over: list[str]
    log: str


def perform(plan: Plan, model: Path, folder: Path, first_port: int) -> Run:
    """Run a plan on the artifact `model`; what is written goes below `folder`."""
    artifact = (
        artifact_with_hooks(folder / plan.name.replace(" ", "-"), model, HOOKS) if plan.has_hooks else model
    )
    with RunningStack(artifact, first_port, **plan.environ) as stack:
        stack.wait_until_ready()
        watch, crowd, killer = (
            Watch(stack),
            Crowd(stack.port, plan.seed, may_stream=plan.has_hooks),
            _killer(plan, stack),
        )
        began = time.monotonic()
        for each in (watch, killer):
            each.start()
        crowd.start(plan.clients)
        time.sleep(plan.seconds / 3)
        files_warm = _files(stack)
        time.sleep(plan.seconds * 2 / 3)
        killer.stop()
        crowd.stop()
        seconds = time.monotonic() - began
        time.sleep(QUIET_SECONDS)
        watch.stop()
        files_at_the_end = _files(stack)
        family = list(descendants(stack.process.pid))
        stopping = time.monotonic()
        status = stack.stop()
        return Run(
            plan,
            began,
            seconds,
            crowd.outcomes,
            killer.kills,
            watch.by_program(),
            files_warm,
            files_at_the_end,
            status,
            time.monotonic() - stopping,
            [pid for pid in family if Path(f"/proc/{pid}").exists()],
            [entry.name for entry in stack.run_folder.iterdir()],
            stack.log,
        )


def _killer(plan: Plan, stack: RunningStack) -> Killer:
    return Killer(
        stack,
        random.Random(plan.seed),  # noqa: S311 - to be repeated, not secret
        every=plan.kill_every,
        servers=plan.servers,
        has_workers=plan.has_hooks,
    )


def _files(stack: RunningStack) -> dict[str, int]:
    """Return what lies in the run folder; the metrics' page takes away what workers that have ended left."""
    stack.request("GET", "/metrics")
    return folder_contents(stack.run_folder)
