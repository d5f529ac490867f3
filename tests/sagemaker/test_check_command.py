"""`pierhead check`: what it says and what it refuses, for folders and archives."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pierhead.errors import ArtifactError
from pierhead_sagemaker.__main__ import main
from pierhead_sagemaker.inspection import describe, inspect_artifact

Layout = Callable[..., Path]
HANDLER = "def handler(data, context): ...\n"
PAIR = "def input_handler(data, context): ...\ndef output_handler(response, context): ...\n"
GRAPH = "half/1/saved_model.pb"


def pack(root: Path) -> Path:
    archive = root.with_name("model.tar.gz")
    with tarfile.open(archive, "w:gz") as members:
        members.add(root, ".")
    return archive


def test_everything_in_an_artifact_is_told(lay: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    root = lay(
        GRAPH, "half/02/saved_model.pb", "z/7/saved_model.pb", "sample.csv", "code/lib/a.py",
        "code/requirements.txt", inference=PAIR,
    )  # fmt: skip

    status = main(["check", str(root)])

    expected = f"""\
{root} can be served
  models    half  versions 1, 2, the default
            z     version 7
  hooks     code/inference.py: input_handler, output_handler
  packages  code/lib; code/requirements.txt is ignored because of it
  sample    sample.csv (text/csv)
"""
    assert (0, expected) == (status, capsys.readouterr().out)


def test_archive_is_checked_as_its_folder_is(lay: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    archive = pack(lay(GRAPH, inference=HANDLER))

    status = main(["check", str(archive)])

    assert status == 0
    assert "hooks     code/inference.py: handler\n" in capsys.readouterr().out


def test_wrong_layout_is_told_with_both_trees(lay: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    archive = pack(lay("m/v1/saved_model.pb"))

    status = main(["check", str(archive)])

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert f"{archive} cannot be served: no SavedModel found below {archive}\n" in said.err
    assert "Found:\n  m/" in said.err
    assert "Expected" in said.err


def test_path_that_does_not_exist_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["check", str(tmp_path / "nope")])

    expected = f"pierhead: there is no file or folder at {tmp_path}/nope\n"
    assert (1, expected) == (status, capsys.readouterr().err)


def test_unsafe_archive_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as members:
        members.addfile(tarfile.TarInfo("../evil"))

    status = main(["check", str(archive)])

    assert status == 1
    assert "'../evil' has '..' in its name" in capsys.readouterr().err


REFUSED = {
    "both shapes": (HANDLER + PAIR, "defines handler and also input_handler and output_handler"),
    "handler and half a pair": (
        HANDLER + "input_handler = print\n",
        "defines handler and also input_handler",
    ),
    "half a pair": ("def output_handler(r, c): ...\n", "defines output_handler alone"),
    "no hook": ("def handle(data, context): ...\n", "defines no hook"),
    "hook of a class": ("class A:\n    def handler(self): ...\n", "defines no hook"),
    "syntax error": ("import json\n\ndef handler(data, context:\n", r"inference\.py, line 3: "),
    "zero byte": ("a\0b", r"inference\.py"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_hooks_that_the_container_refuses_are_refused(text: str, reason: str, lay: Layout) -> None:
    root = lay(GRAPH, inference=text)

    with pytest.raises(ArtifactError, match=reason):
        inspect_artifact(root, {})


ACCEPTED = {
    "function": HANDLER,
    "assignment": "handler = make()\n",
    "annotated assignment": "handler: object = make()\n",
    "import": "from mine import run as handler\n",
    "condition": f"if fast:\n    {HANDLER}else:\n    handler = slow\n",
    "attempt": "try:\n    from a import handler\nexcept ImportError:\n    from b import handler\n",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_hooks_are_found_however_they_are_bound(text: str, lay: Layout) -> None:
    script = inspect_artifact(lay(GRAPH, inference=text), {}).hook_script

    assert script is not None
    assert script.hooks == ("handler",)


TOOLKIT = "def model_fn(model_dir): ...\ndef predict_fn(data, model): ...\n"


def test_functions_of_the_toolkit_need_no_model(lay: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    root = lay("weights.npy", inference=TOOLKIT)

    status = main(["check", str(root)])

    expected = f"""\
{root} can be served
  models    no SavedModel: the hooks load a model by themselves
  hooks     code/inference.py: model_fn, predict_fn
  packages  none
  sample    none
"""
    assert (0, expected) == (status, capsys.readouterr().out)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TOOLKIT + HANDLER, "defines handler and also model_fn and predict_fn"),
        ("def predict_fn(data, model): ...\n", "defines no model_fn"),
    ],
)
def test_functions_of_the_toolkit_that_the_container_refuses_are_refused(
    text: str, reason: str, lay: Layout
) -> None:
    with pytest.raises(ArtifactError, match=reason):
        inspect_artifact(lay(GRAPH, inference=text), {})


def test_hooks_behind_a_star_import_are_left_to_the_container(lay: Layout) -> None:
    found = inspect_artifact(lay(GRAPH, inference="from mine import *\n"), {})

    assert "code/inference.py: not known before it runs" in describe(found)


def test_program_variable_names_the_script(lay: Layout) -> None:
    found = inspect_artifact(lay(GRAPH, other=HANDLER), {"SAGEMAKER_PROGRAM": "other.py"})

    assert "code/other.py: handler" in describe(found)


def test_default_model_variable_wins(lay: Layout) -> None:
    root = lay("a/1/saved_model.pb", "b/1/saved_model.pb")

    chosen = inspect_artifact(root, {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "b"}).default
    first = inspect_artifact(root, {}).default

    assert chosen is not None
    assert chosen.name == "b"
    assert first is not None
    assert first.name == "a"


def test_all_problems_are_told_at_once(lay: Layout) -> None:
    root = lay(GRAPH, inference="")

    with pytest.raises(ArtifactError) as refusal:
        inspect_artifact(root, {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "c"})

    assert "SAGEMAKER_TFS_DEFAULT_MODEL_NAME='c' is no model of the artifact" in str(refusal.value)
    assert "defines no hook" in str(refusal.value)


@pytest.mark.parametrize(
    ("names", "note"),
    [
        ((GRAPH, "inference.py"), "hooks are read from code/inference.py"),
        ((GRAPH, "code/readme"), "code/ holds no inference.py"),
        ((GRAPH, "code/lib/requirements.txt"), "code/lib/requirements.txt is not installed"),
    ],
)
def test_files_without_effect_are_noted(names: tuple[str, ...], note: str, lay: Layout) -> None:
    assert any(note in line for line in inspect_artifact(lay(*names), {}).notes)


def test_hidden_files_are_ignored(lay: Layout) -> None:
    found = inspect_artifact(lay(GRAPH, "half/._1", "half/.DS_Store"), {})

    assert [model.versions for model in found.artifact.models] == [(1,)]
