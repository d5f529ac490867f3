"""What hooks need: requirements.txt is installed for them alone, `lib/` is put on their path."""

from __future__ import annotations

import zipfile
from pathlib import Path

from artifacts import artifact_with_hooks
from running_stack import StartStack

USES_PACKAGE = """
    import tiny_package


    def handler(data, context):
        return tiny_package.ANSWER, "text/plain"
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


def test_lib_wins_over_requirements(start_stack: StartStack, half_plus_two: Path, tmp_path: Path) -> None:
    artifact = artifact_with_hooks(tmp_path, half_plus_two, USES_PACKAGE, requirements_txt="not-to-be-had\n")
    library = artifact / "code" / "lib"
    library.mkdir()
    (library / "tiny_package.py").write_text("ANSWER = 'from lib'\n")
    stack = start_stack(artifact)

    answer = stack.invoke("x", "text/plain")

    assert (answer.status, answer.body) == (200, b"from lib")
    assert "code/requirements.txt is not installed" in stack.log


def test_requirements_that_cannot_be_had_end_the_start(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    requirements = "--no-index\nnot-to-be-had\n"
    artifact = artifact_with_hooks(tmp_path, half_plus_two, USES_PACKAGE, requirements_txt=requirements)
    stack = start_stack(artifact, wait=False)

    assert stack.process.wait(60) == 1
    assert "No matching distribution found for not-to-be-had" in stack.log
    assert "cannot go on: requirements" in stack.log
