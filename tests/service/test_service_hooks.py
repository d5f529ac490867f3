from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pierhead.errors import HookShapeError, UserCodeError
from pierhead.service.hooks import HookPair, WholeHook, load_hooks
from pierhead.service.user_code import explain_failure

HANDLER = "def handler(data, context): return b''\n"
INPUT = "def input_handler(data, context): return data.read()\n"
OUTPUT = "def output_handler(response, context): return response.content, 'application/json'\n"


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def load(code: Path, source: str) -> WholeHook | HookPair:
    file = code / "inference.py"
    file.write_text(source)
    return load_hooks(file, code)


def test_handler_alone_answers_by_itself(tmp_path: Path) -> None:
    assert isinstance(load(tmp_path, HANDLER), WholeHook)


def test_pair_stands_around_the_model(tmp_path: Path) -> None:
    assert isinstance(load(tmp_path, INPUT + OUTPUT), HookPair)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("", "defines no hooks"),
        (INPUT, "defines input_handler; "),
        (OUTPUT, "defines output_handler; "),
        (HANDLER + INPUT + OUTPUT, "defines handler and input_handler and output_handler"),
        (HANDLER + OUTPUT, "defines handler and output_handler"),
        ("handler = 3\n", "handler in inference.py is no function"),
        ("def handler(data): pass\n", r"defines handler\(data\)"),
        ("def input_handler(data): pass\n" + OUTPUT, r"defines input_handler\(data\)"),
        (INPUT + "def output_handler(a, b, c): pass\n", r"defines output_handler\(a, b, c\)"),
    ],
)
def test_wrong_shape_is_refused_with_what_was_found_and_is_wanted(
    tmp_path: Path, source: str, found: str
) -> None:
    with pytest.raises(HookShapeError, match=f"{found}.*wanted is"):
        load(tmp_path, source)


@pytest.mark.parametrize(
    "source",
    [
        "def handler(data, context=None, *rest): pass\n",
        "handler = lambda *both: b''\n",
        "class H:\n    def __call__(self, data, context): pass\nhandler = H()\n",
        "import functools\ndef f(a, data, context): pass\nhandler = functools.partial(f, 1)\n",
    ],
)
def test_anything_that_takes_two_arguments_is_a_hook(tmp_path: Path, source: str) -> None:
    assert isinstance(load(tmp_path, source), WholeHook)


def test_modules_beside_the_hooks_and_in_lib_are_found(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "beside_the_hooks.py").write_text("A = 1\n")
    (tmp_path / "lib" / "in_the_library.py").write_text("B = 2\n")

    hooks = load(tmp_path, "import beside_the_hooks, in_the_library\n" + HANDLER)

    assert isinstance(hooks, WholeHook)


def test_import_failure_shows_the_users_frames_alone(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as failure:
        load(tmp_path, "def start():\n    import not_there\nstart()\n")

    text = explain_failure(failure.value)
    assert text.startswith(
        "inference.py cannot be imported: ModuleNotFoundError: No module named 'not_there'\nTraceback"
    )
    assert "pierhead/service" not in text
    assert "importlib" not in text
    assert text.count("inference.py") == 3


def test_syntax_error_shows_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as failure:
        load(tmp_path, "x = 1\ndef handler(:\n")

    assert f'File "{tmp_path}/inference.py", line 2' in explain_failure(failure.value)


def test_sys_exit_at_import_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="cannot be imported: SystemExit: 3"):
        load(tmp_path, "import sys\nsys.exit(3)\n")
