"""A stack that cannot be started says why, once, and ends: no traceback of ours, no loop."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from artifacts import PASSING_THROUGH, artifact_with_hooks
from running_stack import RunningStack, StartStack


def refused(stack: RunningStack, seconds: float = 45) -> str:
    """Return the log of a stack that has to end by itself with a status that is not 0."""
    assert stack.process.wait(seconds) == 1, stack.log
    return stack.log


def test_all_bad_settings_are_named_at_once(start_stack: StartStack, half_plus_two: Path) -> None:
    stack = start_stack(
        half_plus_two,
        wait=False,
        SAGEMAKER_TFS_INSTANCE_COUNT="zero",
        SAGEMAKER_MULTI_MODEL="yes",
        SAGEMAKER_TFS_ENABLE_BATCHING="1",
    )

    log = refused(stack, 5)

    assert "SAGEMAKER_TFS_INSTANCE_COUNT='zero': must be a whole number" in log
    assert "SAGEMAKER_MULTI_MODEL='yes': must be true or false" in log
    assert "SAGEMAKER_TFS_ENABLE_BATCHING='1': must be true or false" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("layout", ["top", "m/v1", "m/0.1", "m/1-empty", "empty", "packed"])
def test_a_wrong_layout_shows_what_was_found_and_what_is_expected(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path, layout: str
) -> None:
    graph = half_plus_two / "half_plus_two" / "1" / "saved_model.pb"
    place = {"top": ".", "m/v1": "m/v1", "m/0.1": "m/0.1"}.get(layout)
    if place is not None:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(graph, tmp_path / place)
    elif layout == "m/1-empty":
        (tmp_path / "m" / "1").mkdir(parents=True)
    elif layout == "packed":
        (tmp_path / "m.tar.gz").write_bytes(b"")

    log = refused(start_stack(tmp_path, wait=False), 10)

    assert "no SavedModel found below" in log
    assert "Found:" in log
    assert "Expected" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("inference", "reason"),
    [
        ("import not_there", "not_there"),
        ("def handler(data, context)\n    return 1", "SyntaxError"),
        ("import sys\nsys.exit(3)", "exit"),
        ("x = 1", "handler"),
        (PASSING_THROUGH + "\n    def handler(data, context):\n        return data", "input_handler"),
    ],
)
def test_hooks_that_cannot_be_used_end_the_start_with_their_reason_once(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path, inference: str, reason: str
) -> None:
    artifact = artifact_with_hooks(tmp_path, half_plus_two, inference)

    log = refused(start_stack(artifact, wait=False))

    assert reason in log
    assert len(re.findall("cannot go on: handler-workers", log)) == 1
    assert log.count("Traceback") <= 1
    assert "/pierhead/" not in log.partition("Traceback")[2]


def test_a_model_that_cannot_be_loaded_ends_the_start(start_stack: StartStack, tmp_path: Path) -> None:
    version = tmp_path / "broken" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"this is no graph")

    log = refused(start_stack(tmp_path, wait=False))

    assert "broken" in log
    assert log.count("cannot go on: model-server-1") == 1
    assert "Traceback" not in log


def test_a_port_in_use_is_named(start_stack: StartStack, half_plus_two: Path) -> None:
    first = start_stack(half_plus_two)

    log = refused(start_stack(half_plus_two, wait=False, SAGEMAKER_BIND_TO_PORT=str(first.port)), 5)

    assert f"port {first.port} is in use (SAGEMAKER_BIND_TO_PORT)" in log


def test_an_unknown_default_model_is_named(start_stack: StartStack, half_plus_two: Path) -> None:
    log = refused(start_stack(half_plus_two, wait=False, SAGEMAKER_TFS_DEFAULT_MODEL_NAME="nope"), 5)

    assert "SAGEMAKER_TFS_DEFAULT_MODEL_NAME='nope': must be one of" in log
