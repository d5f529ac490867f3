"""What hooks need: requirements.txt is installed for them alone, `lib/` is put on their path."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from artifacts import artifact_of_code, artifact_with_hooks
from local_http import Quiet, serving
from running_stack import StartStack

USES_PACKAGE = """
    import tiny_package


    def handler(data, context):
        return tiny_package.ANSWER, "text/plain"
    """
# Without a SavedModel a stack starts in a fraction of the time.
CODE_ALONE = """
    import tiny_package


    def model_fn(model_dir):
        return tiny_package.ANSWER


    def transform_fn(model, data, content_type, accept):
        return model, "text/plain"
    """


def make_wheel(folder: Path) -> None:
    """Write a wheel of a package with one constant."""
    name, info = "tiny_package-1.0", "tiny_package-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_package.py", "ANSWER = 'installed'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny_package\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_requirements_are_installed_before_the_hooks_are_imported(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    make_wheel(tmp_path)
    requirements = f"--no-index\n--find-links {tmp_path}\ntiny_package\n"
    artifact = artifact_with_hooks(tmp_path, half_plus_two, USES_PACKAGE, requirements_txt=requirements)

    answer = start_stack(artifact).invoke("x", "text/plain")

    assert (answer.status, answer.body) == (200, b"installed")


def code_alone(folder: Path, **files: str) -> Path:
    """Return an artifact whose code folder holds these files, by their paths with `_` for the dot."""
    artifact = artifact_of_code(folder / "artifact", CODE_ALONE)
    for name, text in files.items():
        file = artifact / "code" / name.replace("_txt", ".txt").replace("lib_", "lib/")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return artifact


def put_in_lib(artifact: Path) -> None:
    library = artifact / "code" / "lib"
    library.mkdir(exist_ok=True)
    (library / "tiny_package.py").write_text("ANSWER = 'from lib'\n")


def test_packages_come_from_the_index_that_pip_is_told(start_stack: StartStack, tmp_path: Path) -> None:
    index = tmp_path / "index" / "tiny-package"
    index.mkdir(parents=True)
    make_wheel(index)
    (index / "index.html").write_text('<a href="tiny_package-1.0-py3-none-any.whl">tiny_package</a>')
    artifact = code_alone(tmp_path, requirements_txt="tiny_package\n")

    with file_server(index.parent) as address:
        answer = start_stack(artifact, PIP_INDEX_URL=address).invoke("x", "text/plain")

    assert (answer.status, answer.body) == (200, b"installed")


def test_lib_alone_is_on_the_path(start_stack: StartStack, tmp_path: Path) -> None:
    artifact = code_alone(tmp_path)
    put_in_lib(artifact)
    stack = start_stack(artifact)

    assert stack.invoke("x", "text/plain").body == b"from lib"
    assert "is not installed" not in stack.log


@pytest.mark.parametrize("name", ["requirements_txt", "lib_requirements_txt"])
def test_lib_wins_over_requirements_and_that_is_logged(
    start_stack: StartStack, tmp_path: Path, name: str
) -> None:
    artifact = code_alone(tmp_path, **{name: "not-to-be-had\n"})
    put_in_lib(artifact)
    stack = start_stack(artifact)

    assert stack.invoke("x", "text/plain").body == b"from lib"
    file = name.replace("_txt", ".txt").replace("lib_", "lib/")
    assert f"WARNING supervisor: code/{file} is not installed: code/lib/ is used as it is" in stack.log


@pytest.mark.parametrize("requirements", ["--no-index\nnot-to-be-had\n", "not-to-be-had\n"])
def test_requirements_that_cannot_be_had_end_the_start(
    start_stack: StartStack, tmp_path: Path, requirements: str
) -> None:
    artifact = code_alone(tmp_path, requirements_txt=requirements)
    # Nobody listens there: that is a network that refuses.
    stack = start_stack(artifact, wait=False, PIP_INDEX_URL="http://127.0.0.1:1/simple")

    assert stack.process.wait(60) == 1
    assert "No matching distribution found for not-to-be-had" in stack.log
    assert "cannot go on: requirements" in stack.log
    assert "Starting gunicorn" not in stack.log


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Yield the address of a server of a folder's files."""

    class Files(Quiet, SimpleHTTPRequestHandler):
        def __init__(self, *values: Any) -> None:
            super().__init__(*values, directory=str(folder))

    with serving(Files) as address:
        yield address
