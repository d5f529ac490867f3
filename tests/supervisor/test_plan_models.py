"""What a multi-model endpoint changes in the plan, in nginx's own errors, and in the wait for an end."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
from pathlib import Path

import pytest

from pierhead.contract.artifact import Artifact
from pierhead.contract.model_names import LONGEST_NAME, NAME_PATTERN, name_pattern
from pierhead.control import ServicePlan
from pierhead.logs import LogWriter
from pierhead.settings import Settings
from pierhead.supervisor.nginx_errors import nginx_errors
from pierhead.supervisor.outputs import Outputs
from pierhead.supervisor.plan import NGINX, UNIVERSAL_CODE, WORKERS, Inputs, process_specs, service_plan
from pierhead.supervisor.process import ProcessSpec
from pierhead.supervisor.requirements import Requirements
from pierhead.supervisor.run_folder import RunFolder
from pierhead.supervisor.spawner import NURSERY, Spawner

BUCKET = {
    "SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET": "bucket",
    "SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX": "pre/fix",
}


def settings(**environ: str) -> Settings:
    return Settings.from_env({"SAGEMAKER_MULTI_MODEL": "true", **environ})


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(
        settings=settings(),
        artifact=Artifact(tmp_path, (), None),
        run=RunFolder(Path("/run/pierhead"), is_private=True),
        servers=(),
        nginx="/usr/sbin/nginx",
        model_server=None,
        use_nursery=True,
        requirements=Requirements(None, None),
        workers_python="/usr/bin/python3",
    )


def test_stack_begins_with_a_nursery_and_no_model_server(inputs: Inputs) -> None:
    assert [spec.name for spec in process_specs(inputs)] == [NURSERY, WORKERS, NGINX]


def test_shared_workers_are_told_where_loaded_models_are_and_of_none(inputs: Inputs) -> None:
    plan = service_plan(inputs)

    assert plan == ServicePlan(
        settings=inputs.settings.to_env(),
        socket="/run/pierhead/workers.sock",
        control_socket="/run/pierhead/control.sock",
        servers=(),
        models=(),
        default_model="",
        code=None,
        hooks=None,
        loaded="/run/pierhead/loaded",
    )


def test_hooks_in_the_base_folder_are_shared(inputs: Inputs, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "inference.py").touch()
    plan = service_plan(dataclasses.replace(inputs, artifact=Artifact(tmp_path, (), code)))

    assert plan.hooks == str(code / "inference.py")
    assert plan.code == str(code)


def test_shared_hooks_may_be_downloaded_before_the_workers_start(inputs: Inputs) -> None:
    downloading = dataclasses.replace(inputs, settings=settings(**BUCKET))
    first = process_specs(downloading)[0]

    assert first.name == UNIVERSAL_CODE
    assert first.once
    assert {"bucket", "pre/fix", "/run/pierhead/universal/code"} <= set(first.command)
    assert service_plan(downloading).hooks == "/run/pierhead/universal/code/inference.py"


def test_whatever_is_away_is_503_and_the_routes_are_those_of_models() -> None:
    errors = nginx_errors(settings())

    assert len({error.status for error in errors}) == len(errors)
    assert 502 not in {error.status for error in errors}
    assert [error.caught for error in errors if error.status == 503] == ["502 =503"]
    assert not [error for error in errors if "/invocations" in error.sentence]
    assert [error.status for error in errors if "/models/NAME/invoke" in error.sentence] == [404, 405]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a", True),
        ("0.-_", True),
        (LONGEST_NAME * "n", True),
        ((LONGEST_NAME + 1) * "n", False),
        ("", False),
        *((bad, False) for bad in (".", "..", ".a", "-a", "_a", "a/b", "a\n", "a\0", "ä", "٣", "a b", "a%")),
    ],
)
def test_grammar_of_names(name: str, is_one: bool) -> None:
    assert is_one == (re.fullmatch(NAME_PATTERN, name) is not None)


def test_pattern_of_long_names_begins_where_that_of_short_ones_ends() -> None:
    short, long = name_pattern(1, 92), name_pattern(93, LONGEST_NAME)

    for length in range(1, LONGEST_NAME + 1):
        matches = [re.fullmatch(pattern, length * "n") is not None for pattern in (short, long)]
        assert matches == [length <= 92, length > 92]


def test_end_of_a_group_is_waited_for_and_its_time_is_bounded() -> None:
    spawner = Spawner({"PATH": "/usr/bin:/bin"}, lambda _: None, Outputs(LogWriter()))
    pid = spawner.spawn(ProcessSpec("sleeper", ("/bin/sleep", "60")))
    assert pid is not None
    try:
        assert not spawner.wait_until_gone([pid], 0.05, 0.01)
    finally:
        spawner.kill_group(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    assert spawner.wait_until_gone([pid], 5.0, 0.01)
    assert spawner.wait_until_gone([], 0.0, 0.01)
