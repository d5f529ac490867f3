"""A tensorflow_model_server on PATH is used, with its own flags and nothing of ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from running_stack import RunningStack, StartStack

# A stand-in that says so: the real binary is not to be had here. It passes its flags on to our own server.
STAND_IN = """\
#!{python}
import os, sys
open({record!r}, "w").write("\\n".join(sys.argv[1:]))
os.execv({python!r}, [{python!r}, "-m", "pierhead.modelserver", *sys.argv[1:]])
"""


ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


def make_stand_in(folder: Path) -> dict[str, str]:
    """Return the environment in which the stand-in is the first on PATH; its flags go to `folder/flags`."""
    binary = folder / "tensorflow_model_server"
    binary.write_text(STAND_IN.format(python=sys.executable, record=str(folder / "flags")))
    binary.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def both(
    half_plus_two: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningStack, RunningStack]]:
    """Yield a stack with the embedded server and one with the stand-in."""
    environ = make_stand_in(tmp_path_factory.mktemp("stand-in"))
    with (
        RunningStack(half_plus_two, free_ports(9)) as embedded,
        RunningStack(half_plus_two, free_ports(9), **environ) as binary,
    ):
        embedded.wait_until_ready()
        binary.wait_until_ready()
        yield embedded, binary


@pytest.mark.parametrize(
    ("content_type", "body", "headers"),
    [
        ("application/json", '{"instances": [1.0, 2.0, 5.0]}', {}),
        ("application/json", '{"inputs": {"x": [1.0, 2.0, 5.0]}}', {}),
        ("application/json", "[1.0, 2.0, 5.0]", {}),
        ("text/csv", "1.0\n2.0\n5.0\n", {}),
        ("application/jsonlines", "1.0\n2.0\n5.0\n", {}),
        (
            "application/json",
            '{"instances": [1.0, 2.0]}',
            {"Accept": "application/jsonlines;q=0.9, */*;q=0.1"},
        ),
        ("application/json", '{"instances": [1.0, 2.0]}', {"Accept": "text/csv"}),
        ("application/json", '{"instances": [1.0]}', {"Accept": "image/png"}),
        ("image/png", "x", {}),
        ("application/json", "", {}),
        ("text/csv", "", {}),
        ("text/csv", '1,"2', {}),
        ("application/json", '{"instances": ["a"]}', {}),
        ("application/json", '{"user": [10], "item": [1]}', {}),
        ("application/json", '{"signature_name": "zz", "instances": [1]}', {}),
        ("application/json", '{"instances": [1.0]}', {ATTRIBUTES: "tfs-model-name=zz"}),
        ("application/json", '{"instances": [1.0]}', {ATTRIBUTES: "tfs-model-version=9"}),
        ("application/json", '{"instances": [1.0]}', {ATTRIBUTES: "tfs-method=zz"}),
    ],
)
def test_both_model_servers_and_both_paths_answer_the_same_bytes(
    both: tuple[RunningStack, RunningStack], content_type: str, body: str, headers: dict[str, str]
) -> None:
    embedded, binary = (stack.invoke(body, content_type, **headers) for stack in both)

    assert embedded == binary


def test_a_binary_on_path_serves_json_directly_and_the_rest_through_workers(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    stack = start_stack(half_plus_two, **make_stand_in(tmp_path))

    predictions = [
        stack.invoke('{"instances": [1.0, 2.0, 5.0]}').json(),
        stack.invoke("1.0\n2.0\n5.0\n", "text/csv").json(),
        stack.invoke("1.0\n2.0\n5.0\n", "application/jsonlines").json(),
    ]
    bare = stack.invoke("[1.0, 2.0, 5.0]")

    assert predictions == [{"predictions": [2.5, 3.0, 4.5]}] * 3
    assert bare.json() == {"predictions": [[2.5, 3.0, 4.5]]}
    flags = [line.partition("=")[0] for line in (tmp_path / "flags").read_text().splitlines()]
    assert "--model_config_file" in flags
    assert "--bind_address" not in flags
    assert stack.stop() == 0
