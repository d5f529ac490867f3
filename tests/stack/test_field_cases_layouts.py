"""Wrong layouts of an artifact end the start at once and say why (C11); odd but right ones are served."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from running_stack import StartStack
from stub_binary import StubBinary

SECONDS = 10
BODY = '{"instances": [1.0, 2.0, 5.0]}'


def place_graph(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(b"")


def graph_on_top(root: Path) -> None:
    place_graph(root)


def version_with_a_letter(root: Path) -> None:
    place_graph(root / "m" / "v1")


def version_with_a_point(root: Path) -> None:
    place_graph(root / "m" / "0.1")


def empty_version(root: Path) -> None:
    (root / "m" / "1").mkdir(parents=True)


def nothing(root: Path) -> None:
    root.mkdir(exist_ok=True)


def still_packed(root: Path) -> None:
    root.mkdir(exist_ok=True)
    with tarfile.open(root / "m.tar.gz", "w:gz") as archive:
        archive.add(__file__, "1/saved_model.pb")


def no_folder(root: Path) -> None:
    root.rmdir()


@pytest.mark.parametrize(
    ("lay_out", "hint"),
    [
        (graph_on_top, "saved_model.pb is not under an integer version"),
        (version_with_a_letter, "move it to m/v1/1/saved_model.pb"),
        (version_with_a_point, "move it to m/0.1/1/saved_model.pb"),
        (empty_version, "1/"),
        (nothing, "(empty)"),
        (still_packed, "m.tar.gz is still packed"),
        (no_folder, "there is no model folder at"),
    ],
)
@pytest.mark.parametrize("server", ["embedded", "stub"])
def test_a_wrong_layout_ends_the_start_and_says_why(
    start_stack: StartStack,
    stub: StubBinary,
    tmp_path: Path,
    lay_out: Callable[[Path], None],
    hint: str,
    server: str,
) -> None:
    root = tmp_path / "artifact"
    root.mkdir()
    lay_out(root)

    stack = start_stack(root, wait=False, **(stub.environ() if server == "stub" else {}))

    assert stack.process.wait(SECONDS) == 1
    assert hint in stack.log
    assert stack.log.count("cannot start") == 1
    assert "Traceback" not in stack.log
    if lay_out is not no_folder:
        assert "Found:" in stack.log
        assert "Expected" in stack.log


def test_a_folder_that_cannot_be_read_is_named(start_stack: StartStack, tmp_path: Path) -> None:
    root = tmp_path / "artifact"
    (root / "m").mkdir(parents=True)
    (root / "m").chmod(0)
    if os.access(root / "m", os.R_OK):
        pytest.skip("a user of all rights reads everything")

    stack = start_stack(root, wait=False)

    assert stack.process.wait(SECONDS) == 1
    assert "m cannot be read: Permission denied" in stack.log
    assert "Traceback" not in stack.log


@pytest.fixture(scope="module")
def odd_artifact(half_plus_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an artifact with hidden files, a zero-padded version, and a model some folders down."""
    root = tmp_path_factory.mktemp("odd")
    model = half_plus_two / "half_plus_two" / "1"
    padded, nested = root / "padded", root / "export" / "Servo" / "nested"
    for folder, version in ((padded, "00000007"), (nested, "3")):
        folder.mkdir(parents=True)
        (folder / version).symlink_to(model)
        (folder / "._1").write_bytes(b"")
        (folder / ".DS_Store").write_bytes(b"")
    (root / "._padded").write_bytes(b"")
    (root / ".hidden" / "1").mkdir(parents=True)
    (root / ".hidden" / "1" / "saved_model.pb").write_bytes(b"")
    return root


@pytest.mark.parametrize("server", ["embedded", "stub"])
def test_padded_versions_and_nested_models_are_served_and_hidden_files_are_not(
    start_stack: StartStack, odd_artifact: Path, stub: StubBinary, server: str
) -> None:
    stack = start_stack(odd_artifact, **(stub.environ() if server == "stub" else {}))

    for attributes in (
        "tfs-model-name=padded",
        "tfs-model-name=padded,tfs-model-version=7",
        "tfs-model-name=nested",
    ):
        answer = stack.invoke(BODY, X_Amzn_SageMaker_Custom_Attributes=attributes)
        assert (attributes, answer.json()) == (attributes, {"predictions": [2.5, 3.0, 4.5]})
    assert "hidden" not in stack.log.replace("handler", "")


def test_nobody_is_told_what_cannot_be_read(tmp_path: Path) -> None:
    """As nobody, where the tests run as root: rights do not hold root back."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    root = tmp_path / "artifact"
    (root / "m").mkdir(parents=True)
    (root / "m").chmod(0)
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pierhead.contract.artifact import find_artifact\n"
        "from pierhead.errors import ArtifactError\n"
        "from pathlib import Path\n"
        "os.chdir(sys.argv[2]); os.setuid(65534)\n"
        "try: find_artifact(Path('.'))\n"
        "except ArtifactError as problem: sys.exit(str(problem))\n"
    )
    container = Path(__file__).parents[2] / "container"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(container), str(root)], capture_output=True, timeout=60, check=False
    )

    assert ended.returncode == 1
    assert b"Permission denied" in ended.stderr
    assert b"Traceback" not in ended.stderr
