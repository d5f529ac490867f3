"""The processes of one loaded model and the files that they read."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from pierhead.contract.artifact import Artifact, Model
from pierhead.control import ModelPlan, ServerAddress, read_plan
from pierhead.settings import Settings
from pierhead.supervisor.models.layout import Layout, name_default_model
from pierhead.supervisor.models.model import PreparedModel
from pierhead.supervisor.plan import Inputs
from pierhead.supervisor.process import ProcessSpec
from pierhead.supervisor.requirements import Requirements
from pierhead.supervisor.run_folder import RunFolder
from pierhead.supervisor.spawner import NURSERY

TWO = (ServerAddress(9000, 8501), ServerAddress(9001, 8502))


def settings(**environ: str) -> Settings:
    return Settings.from_env({"SAGEMAKER_MULTI_MODEL": "true", **environ})


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """An embedded server, forked by the nursery, and no shared hooks."""
    return Inputs(
        settings=settings(),
        artifact=Artifact(tmp_path, (), None),
        run=RunFolder(tmp_path / "run", is_private=False),
        servers=(),
        nginx="/usr/sbin/nginx",
        model_server=None,
        use_nursery=True,
        requirements=Requirements(None, None),
        workers_python="/usr/bin/python3",
    )


def artifact(root: Path, *names: str) -> Artifact:
    code = root / "code"
    return Artifact(
        root,
        tuple(Model(name, root / name, (1, 2)) for name in names or ("a",)),
        code if code.is_dir() else None,
    )


def with_hooks(root: Path, **files: str) -> Artifact:
    (root / "code").mkdir(parents=True)
    (root / "code" / "inference.py").write_text("def handler(data, context): ...\n")
    for name, text in files.items():
        (root / "code" / name.replace("_txt", ".txt")).write_text(text)
    return artifact(root)


def lay_out(inputs: Inputs, artifact: Artifact, *addresses: ServerAddress) -> tuple[Path, PreparedModel]:
    folder = inputs.run.models / "7"
    folder.mkdir(parents=True)
    return folder, Layout(inputs, "a", folder, artifact, addresses or TWO[:1]).lay_out()


def by_name(prepared: PreparedModel) -> dict[str, ProcessSpec]:
    return {spec.name: spec for spec in prepared.specs}


def test_embedded_server_takes_invocations_from_a_socket_of_its_own(inputs: Inputs, tmp_path: Path) -> None:
    folder, prepared = lay_out(inputs, artifact(tmp_path), *TWO)

    assert [spec.name for spec in prepared.specs] == ["a/model-server-1", "a/model-server-2"]
    assert prepared.at_sockets == ("a/model-server-1", "a/model-server-2")
    for number, spec in enumerate(prepared.specs):
        assert f"--rest_api_socket_path={folder / f'{number}.sock'}" in spec.command
        assert "--invocations_model=a" in spec.command
        assert f"--process_name=a/model-server-{number + 1}" in spec.command
        assert f"--supervisor_socket={inputs.run.control_socket}" in spec.command
        assert spec.forked
        assert spec.needs == (NURSERY,)
    assert set(prepared.probes) == {spec.name for spec in prepared.specs}
    assert prepared.addresses == TWO


def test_external_server_has_no_socket_and_none_of_our_flags(inputs: Inputs, tmp_path: Path) -> None:
    external = dataclasses.replace(inputs, model_server="/usr/bin/tfs", use_nursery=False)
    _, prepared = lay_out(external, artifact(tmp_path))
    (spec,) = prepared.specs

    assert prepared.at_sockets == ()
    assert not spec.forked
    assert "/usr/bin/tfs" in spec.command
    ours = ("socket", "process_name", "invocations_model", "bind_address")
    assert not [flag for flag in spec.command if any(word in flag for word in ours)]


def test_servers_below_shared_hooks_have_no_socket(inputs: Inputs, tmp_path: Path) -> None:
    shared = with_hooks(tmp_path / "base")
    _, prepared = lay_out(dataclasses.replace(inputs, artifact=shared), artifact(tmp_path))

    assert [spec.name for spec in prepared.specs] == ["a/model-server-1"]
    assert prepared.at_sockets == ()
    assert "socket_path" not in "".join(prepared.specs[0].command)


def test_hooks_of_the_model_have_workers_whose_socket_all_names_lead_to(
    inputs: Inputs, tmp_path: Path
) -> None:
    three = dataclasses.replace(inputs, settings=settings(SAGEMAKER_TFS_INSTANCE_COUNT="3"))
    folder, prepared = lay_out(three, with_hooks(tmp_path), *TWO)
    workers = by_name(prepared)["a/handler-workers"]

    assert prepared.at_sockets == ("a/handler-workers",)
    assert prepared.workers == "a/handler-workers"
    assert workers.stage == 1
    assert workers.command == (sys.executable, "-m", "pierhead.service", str(folder / "plan.json"))
    assert [os.readlink(folder / f"{number}.sock") for number in (1, 2)] == ["0.sock", "0.sock"]
    assert "socket_path" not in "".join(by_name(prepared)["a/model-server-1"].command)


def test_requirements_of_the_model_go_into_an_environment_of_its_own(inputs: Inputs, tmp_path: Path) -> None:
    folder, prepared = lay_out(inputs, with_hooks(tmp_path, requirements_txt="x\n"))
    python = str(folder / "environment" / "bin" / "python")
    specs = by_name(prepared)

    assert Path(python).exists()
    assert specs["a/requirements"].once
    assert python in specs["a/requirements"].command
    assert specs["a/handler-workers"].command[0] == python


def test_hooks_that_load_models_by_themselves_have_no_server(inputs: Inputs, tmp_path: Path) -> None:
    hooks = dataclasses.replace(with_hooks(tmp_path), models=())
    folder = inputs.run.models / "7"
    folder.mkdir(parents=True)
    prepared = Layout(inputs, "a", folder, hooks, ()).lay_out()

    assert [spec.name for spec in prepared.specs] == ["a/handler-workers"]
    assert prepared.probes == {}
    assert read_plan(folder / "plan.json").models == (ModelPlan("a", ()),)


@pytest.mark.parametrize("has_hooks", [True, False])
def test_plan_says_where_the_servers_are(inputs: Inputs, tmp_path: Path, has_hooks: bool) -> None:
    own = with_hooks(tmp_path) if has_hooks else artifact(tmp_path, "a", "b")
    folder, _ = lay_out(inputs, own)
    plan = read_plan(folder / "plan.json")

    assert plan.servers == TWO[:1]
    assert plan.default_model == "a"
    assert plan.process == "a/handler-workers"
    assert plan.socket == str(folder / "0.sock")
    assert plan.loaded is None
    assert plan.hooks == (str(tmp_path / "code" / "inference.py") if has_hooks else None)
    assert [model.name for model in plan.models] == (["a"] if has_hooks else ["a", "b"])


def test_configuration_names_each_servable_and_the_labels_it_has(inputs: Inputs, tmp_path: Path) -> None:
    labelled = dataclasses.replace(inputs, settings=settings(PIERHEAD_VERSION_LABELS="stable=2,canary=9"))
    folder, _ = lay_out(labelled, artifact(tmp_path, "a", "b"))
    text = (folder / "models.config").read_text()

    assert text.count("    name: ") == 2
    assert text.count("'stable' value: 2") == 1
    assert "canary" not in text


@pytest.mark.parametrize(
    ("names", "setting", "expected"),
    [
        (("model",), "", ["end"]),
        (("x", "y"), "", ["end", "y"]),
        (("x", "y"), "y", ["x", "end"]),
        (("x", "y"), "nope", ["end", "y"]),
        (("end", "a"), "a", ["end", "a"]),
        ((), "", []),
    ],
)
def test_default_model_gets_the_name_of_the_endpoint(
    tmp_path: Path, names: tuple[str, ...], setting: str, expected: list[str]
) -> None:
    models = tuple(Model(name, tmp_path / name, (1,)) for name in names)
    environ = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": setting} if setting else {}

    named = name_default_model(Artifact(tmp_path, models, None), "end", settings(**environ))

    assert [model.name for model in named.models] == expected
    assert [model.base_path for model in named.models] == [model.base_path for model in models]
