"""What the code folder asks for, and real installations of a wheel that the test builds."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pierhead.supervisor.requirements import Requirements, find_requirements, make_environment, pip_command

NAME = "tiny_pierhead_wheel"


def write(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def build_wheel(folder: Path) -> None:
    info = f"{NAME}-1.0.dist-info"
    files = {
        f"{NAME}.py": "COLOUR = 'blue'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{NAME}-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PIP_NO_CACHE_DIR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)


@pytest.fixture(scope="module")
def environment() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    yield make_environment(folder / "environment")
    shutil.rmtree(folder)


def test_no_code_folder_asks_for_nothing() -> None:
    assert Requirements(None, None) == find_requirements(None)


def test_empty_code_folder_asks_for_nothing(tmp_path: Path) -> None:
    assert Requirements(None, None) == find_requirements(tmp_path)


def test_requirements_file_is_found(tmp_path: Path) -> None:
    code = write(tmp_path, "requirements.txt")

    assert Requirements(code / "requirements.txt", None) == find_requirements(code)


def test_library_wins_over_the_file_and_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = write(tmp_path / "code", "requirements.txt", "lib/package.py")

    assert Requirements(None, code / "lib") == find_requirements(code)
    assert "code/requirements.txt is not installed" in caplog.text


def test_requirements_inside_the_library_are_not_installed_and_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = write(tmp_path / "code", "lib/requirements.txt")

    assert Requirements(None, code / "lib") == find_requirements(code)
    assert "code/lib/requirements.txt is not installed" in caplog.text


def test_library_alone_is_found_in_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = write(tmp_path, "lib/package.py")

    assert Requirements(None, code / "lib") == find_requirements(code)
    assert caplog.text == ""


def test_pip_command_names_the_file_and_never_asks() -> None:
    command = pip_command(Path("/env/bin/python"), Path("/code/requirements.txt"))

    assert command[1:8] == (
        *("-m", "pierhead.tether", "--directory=/code"),
        *("/env/bin/python", "-m", "pip", "install"),
    )
    assert command[-2:] == ("-r", "/code/requirements.txt")
    assert "--no-input" in command


def test_packages_of_the_stack_are_seen_and_its_own_go_elsewhere(environment: Path, tmp_path: Path) -> None:
    """The wheel is new; jinja2 is the stack's and counts as installed, or pip would fail without an index."""
    build_wheel(tmp_path)
    file = tmp_path / "requirements.txt"
    file.write_text(f"--no-index\n--find-links {tmp_path}\n{NAME}\njinja2\n")

    result = run(*pip_command(environment, file))
    assert result.returncode == 0, result.stderr

    code = f"import {NAME}, jinja2, pierhead, sys; print({NAME}.__file__, sys.prefix, pierhead.__file__)"
    result = run(str(environment), "-c", code)
    assert result.returncode == 0, result.stderr
    place, prefix, pierhead_place = result.stdout.split()
    assert Path(prefix) == environment.parent.parent
    assert Path(place).is_relative_to(environment.parent.parent)
    assert not Path(pierhead_place).is_relative_to(environment.parent.parent)
    assert importlib.util.find_spec(NAME) is None


def test_packages_of_the_environment_come_before_the_stack_s(environment: Path) -> None:
    code = "import sys; print(*[path for path in sys.path if path.endswith('site-packages')], sep='\\n')"
    paths = run(str(environment), "-c", code).stdout.splitlines()

    assert Path(paths[0]).is_relative_to(environment.parent.parent)
    assert len(paths) > 1


def test_package_that_does_not_exist_ends_non_zero_and_is_named(environment: Path, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"--no-index\n--find-links {tmp_path}\nno-such-package-of-pierhead\n")

    result = run(*pip_command(environment, file))

    assert result.returncode != 0
    assert "no-such-package-of-pierhead" in result.stderr


def test_environment_is_made_anew(tmp_path: Path) -> None:
    folder = write(tmp_path / "environment", "old.txt")

    python = make_environment(folder)

    assert python.exists()
    assert not (folder / "old.txt").exists()
