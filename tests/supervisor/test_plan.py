"""Which processes the stack consists of, and what each is told."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pierhead.contract.artifact import Artifact, Model
from pierhead.control import ModelPlan, ServerAddress, read_plan, write_plan
from pierhead.errors import ConfigError
from pierhead.settings import Settings
from pierhead.supervisor.plan import (
    NGINX,
    REQUIREMENTS,
    TETHERED,
    WORKERS,
    Inputs,
    batching_config_text,
    choose_default_model,
    find_hooks,
    model_config_text,
    process_specs,
    service_plan,
)
from pierhead.supervisor.process import ProcessSpec
from pierhead.supervisor.requirements import Requirements
from pierhead.supervisor.run_folder import RunFolder
from pierhead.supervisor.spawner import NURSERY

TWO_SERVERS = (ServerAddress(9000, 8501), ServerAddress(9001, 8502))
PIP_FILE = Path("/opt/ml/model/code/requirements.txt")


def read(**environ: str) -> Settings:
    return Settings.from_env(environ)


def artifact(root: Path, *names: str, code: Path | None = None) -> Artifact:
    return Artifact(root, tuple(Model(name, root / name, (1, 2)) for name in names or ("m",)), code)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(
        settings=read(),
        artifact=artifact(tmp_path),
        run=RunFolder(Path("/run/pierhead"), is_private=True),
        servers=(ServerAddress(9000, 8501),),
        nginx="/usr/sbin/nginx",
        model_server="/usr/bin/tensorflow_model_server",
        use_nursery=False,
        requirements=Requirements(None, None),
        workers_python="/usr/bin/python3",
    )


def specs(inputs: Inputs, **changes: Any) -> dict[str, ProcessSpec]:
    return {spec.name: spec for spec in process_specs(dataclasses.replace(inputs, **changes))}


def test_processes_are_in_the_order_of_their_start(inputs: Inputs) -> None:
    found = specs(
        inputs,
        servers=TWO_SERVERS,
        model_server=None,
        use_nursery=True,
        requirements=Requirements(PIP_FILE, None),
    )

    assert list(found) == [REQUIREMENTS, NURSERY, "model-server-1", "model-server-2", WORKERS, NGINX]
    assert [spec.stage for spec in found.values()] == [0, 0, 0, 0, 1, 2]


def test_external_server_needs_no_nursery(inputs: Inputs) -> None:
    found = specs(inputs)

    assert list(found) == ["model-server-1", WORKERS, NGINX]
    assert found["model-server-1"].needs == ()
    assert not found["model-server-1"].forked


def test_embedded_server_without_a_nursery_is_a_module(inputs: Inputs) -> None:
    command = specs(inputs, model_server=None)["model-server-1"].command

    assert (sys.executable, "-m", "pierhead.modelserver") == command[:3]
    assert "--bind_address=127.0.0.1" in command


@pytest.mark.parametrize("use_nursery", [True, False])
def test_embedded_server_never_listens_off_loopback(use_nursery: bool, inputs: Inputs) -> None:
    command = specs(inputs, model_server=None, use_nursery=use_nursery)["model-server-1"].command

    assert {"--bind_address=127.0.0.1", "--enable_profiler=false"} <= set(command)


def test_forked_server_has_flags_alone_and_needs_the_nursery(inputs: Inputs) -> None:
    server = specs(inputs, model_server=None, use_nursery=True)["model-server-1"]

    assert server.forked
    assert server.needs == (NURSERY,)
    assert all(each.startswith("--") for each in server.command)


def test_each_model_server_has_its_own_ports(inputs: Inputs) -> None:
    found = specs(inputs, servers=TWO_SERVERS)

    assert {"--port=9000", "--rest_api_port=8501"} <= set(found["model-server-1"].command)
    assert {"--port=9001", "--rest_api_port=8502"} <= set(found["model-server-2"].command)


@pytest.mark.parametrize(
    ("environ", "flags"),
    [
        ({}, {"--rest_api_timeout_in_ms=62000", "--model_config_file=/run/pierhead/models.config"}),
        ({"PIERHEAD_TIMEOUT_SECONDS": "300"}, {"--rest_api_timeout_in_ms=302000"}),
        ({"SAGEMAKER_TFS_INTRA_OP_PARALLELISM": "3"}, {"--tensorflow_intra_op_parallelism=3"}),
        ({"SAGEMAKER_TFS_INTER_OP_PARALLELISM": "2"}, {"--tensorflow_inter_op_parallelism=2"}),
        (
            {"SAGEMAKER_TFS_ENABLE_BATCHING": "true"},
            {"--enable_batching=true", "--batching_parameters_file=/run/pierhead/batching.config"},
        ),
    ],
)
def test_setting_becomes_a_flag_of_the_model_server(
    environ: dict[str, str], flags: set[str], inputs: Inputs
) -> None:
    assert flags <= set(specs(inputs, settings=read(**environ))["model-server-1"].command)


def test_flags_are_left_out_where_nothing_is_set(inputs: Inputs) -> None:
    command = " ".join(specs(inputs)["model-server-1"].command)

    assert "parallelism" not in command
    assert "batching" not in command


def test_external_server_gets_no_flag_that_it_does_not_know(inputs: Inputs) -> None:
    command = specs(inputs)["model-server-1"].command

    assert not any(each.startswith("--bind_address") for each in command)
    assert "--enable_profiler=false" not in command


def test_openmp_threads_reach_the_model_servers(inputs: Inputs) -> None:
    found = specs(inputs, settings=read(OMP_NUM_THREADS="4"), model_server=None, use_nursery=True)

    assert found["model-server-1"].environment["OMP_NUM_THREADS"] == "4"
    assert found[NURSERY].environment["OMP_NUM_THREADS"] == "4"


def test_workers_and_nginx_are_commands(inputs: Inputs) -> None:
    found = specs(inputs)

    assert found[WORKERS].command == (
        "/usr/bin/python3",
        "-m",
        "pierhead.service",
        "/run/pierhead/workers.json",
    )
    nginx = (
        *TETHERED,
        "/usr/sbin/nginx",
        "-p",
        "/run/pierhead/nginx/",
        "-c",
        "/run/pierhead/nginx.conf",
        "-e",
        "stderr",
    )
    assert nginx == found[NGINX].command


def test_nginx_is_asked_to_drain_and_the_others_to_end(inputs: Inputs) -> None:
    signals = {name: spec.stop_signal for name, spec in specs(inputs).items()}

    assert signals == {"model-server-1": signal.SIGTERM, WORKERS: signal.SIGTERM, NGINX: signal.SIGQUIT}


def test_wait_for_the_start_is_the_setting(inputs: Inputs) -> None:
    found = specs(inputs, settings=read(SAGEMAKER_TFS_WAIT_TIME_SECONDS="5"))

    assert {5.0} == {spec.start_seconds for spec in found.values()}


def test_requirements_run_once_with_the_workers_python_and_their_own_limit(inputs: Inputs) -> None:
    pip = specs(inputs, requirements=Requirements(PIP_FILE, None))[REQUIREMENTS]

    assert pip.once
    assert pip.command[4:8] == ("/usr/bin/python3", "-m", "pip", "install")
    assert pip.command[-2:] == ("-r", str(PIP_FILE))
    assert pip.limit == "the limit of requirements.txt"


@pytest.mark.parametrize(
    ("wanted", "names", "chosen"),
    [("", ("b",), "b"), ("", ("a", "b"), "a"), ("b", ("a", "b"), "b")],
)
def test_default_model_is_the_setting_or_the_first(
    wanted: str, names: tuple[str, ...], chosen: str, tmp_path: Path
) -> None:
    settings = read(SAGEMAKER_TFS_DEFAULT_MODEL_NAME=wanted)

    assert chosen == choose_default_model(settings, artifact(tmp_path, *names))


def test_default_model_that_the_artifact_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SAGEMAKER_TFS_DEFAULT_MODEL_NAME='c': must be one of") as problem:
        choose_default_model(read(SAGEMAKER_TFS_DEFAULT_MODEL_NAME="c"), artifact(tmp_path, "a", "b"))

    assert "['a', 'b']" in str(problem.value)


def test_hooks_are_the_program_in_the_code_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "inference.py").mkdir()
    with_code = artifact(tmp_path, code=tmp_path)

    assert find_hooks(read(SAGEMAKER_PROGRAM="mine.py"), with_code) == tmp_path / "mine.py"
    assert find_hooks(read(), with_code) is None
    assert find_hooks(read(), artifact(tmp_path)) is None


@pytest.mark.parametrize("has_hooks", [True, False])
def test_service_plan_tells_all_and_survives_the_file(
    has_hooks: bool, inputs: Inputs, tmp_path: Path
) -> None:
    if has_hooks:
        (tmp_path / "inference.py").touch()
    changed = dataclasses.replace(inputs, artifact=artifact(tmp_path, "a", "b", code=tmp_path))

    plan = service_plan(changed)

    assert Settings.from_env(plan.settings) == inputs.settings
    assert (ModelPlan("a", (1, 2)), ModelPlan("b", (1, 2))) == plan.models
    assert plan.default_model == "a"
    assert inputs.servers == plan.servers
    assert plan.hooks == (str(tmp_path / "inference.py") if has_hooks else None)
    assert plan.code == (str(tmp_path) if has_hooks else None)
    write_plan(plan, tmp_path / "plan.json")
    assert plan == read_plan(tmp_path / "plan.json")


def test_model_config_serves_all_versions_of_all_models(tmp_path: Path) -> None:
    expected = f"""\
model_config_list {{
  config {{
    name: 'a'
    base_path: '{tmp_path}/a'
    model_platform: 'tensorflow'
    model_version_policy {{ specific {{ versions: 1 versions: 2 }} }}
  }}
  config {{
    name: 'b'
    base_path: '{tmp_path}/b'
    model_platform: 'tensorflow'
    model_version_policy {{ specific {{ versions: 1 versions: 2 }} }}
  }}
}}
"""

    assert expected == model_config_text(artifact(tmp_path, "a", "b"), {})


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("it's", r"'it\047s'"),
        ('a"b', "'a\"b'"),
        ("a\\b", r"'a\134b'"),
        ("a\nb", r"'a\012b'"),
        ("é", r"'\303\251'"),
        ("é1", r"'\303\2511'"),
    ],
)
def test_names_in_the_model_config_are_escaped(name: str, written: str, tmp_path: Path) -> None:
    assert f"    name: {written}\n" in model_config_text(artifact(tmp_path, name), {})


def test_model_config_names_the_folder_behind_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real" / "m").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")

    assert f"base_path: '{tmp_path}/real/m'" in model_config_text(artifact(tmp_path / "link"), {})


def test_batching_config_holds_the_settings() -> None:
    text = batching_config_text(
        read(
            SAGEMAKER_TFS_MAX_BATCH_SIZE="16",
            SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS="0",
            SAGEMAKER_TFS_NUM_BATCH_THREADS="3",
            SAGEMAKER_BATCH="true",
        )
    )

    assert text.splitlines() == [
        "max_batch_size { value: 16 }",
        "batch_timeout_micros { value: 0 }",
        "max_enqueued_batches { value: 100000000 }",
        "num_batch_threads { value: 3 }",
    ]


def test_artifact_without_a_model_runs_workers_and_nginx_alone(inputs: Inputs, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "inference.py").touch()
    changes: dict[str, Any] = {
        "artifact": Artifact(tmp_path, (), code),
        "servers": (),
        "model_server": None,
    }

    plan = service_plan(dataclasses.replace(inputs, **changes))

    assert [WORKERS, NGINX] == list(specs(inputs, **changes))
    assert ((ModelPlan("model", ()),), "model", ()) == (plan.models, plan.default_model, plan.servers)
    assert plan.hooks == str(code / "inference.py")


def test_model_of_the_hooks_has_the_name_that_is_set(tmp_path: Path) -> None:
    settings = read(SAGEMAKER_TFS_DEFAULT_MODEL_NAME="mine")

    assert choose_default_model(settings, Artifact(tmp_path, (), tmp_path)) == "mine"


@pytest.mark.parametrize(
    ("environ", "embedded", "binary"),
    [
        ({}, "2", "0"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "debug"}, "0", "0"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "warning"}, "2", "1"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "error"}, "2", "2"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "critical"}, "3", "3"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "error", "TF_CPP_MIN_LOG_LEVEL": "1"}, "1", "1"),
    ],
)
def test_level_reaches_tensorflow(
    environ: dict[str, str], embedded: str, binary: str, inputs: Inputs
) -> None:
    found = (
        specs(inputs, settings=read(**environ), model_server=server)["model-server-1"]
        for server in (None, "/usr/bin/tensorflow_model_server")
    )

    assert [embedded, binary] == [spec.environment["TF_CPP_MIN_LOG_LEVEL"] for spec in found]


def test_nginx_tells_the_time_in_utc_and_keeps_standard_output(inputs: Inputs) -> None:
    found = specs(inputs)

    assert found[NGINX].environment["TZ"] == "UTC"
    assert [NGINX] == [name for name, spec in found.items() if spec.keeps_stdout]
