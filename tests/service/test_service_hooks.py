from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pierhead.errors import HookShapeError, UserCodeError
from pierhead.service.hooks import HookPair, Hooks, ToolkitHooks, WholeHook, load_hooks
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


def load(code: Path, source: str) -> Hooks:
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


def test_keyboard_interrupt_at_import_is_a_failure_too(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="cannot be imported: KeyboardInterrupt"):
        load(tmp_path, "raise KeyboardInterrupt\n")


def test_module_is_known_by_its_files_name_to_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_that_imports_back.py").write_text(
        "def found():\n    import inference\n    return inference\n"
    )
    source = "import beside_that_imports_back as back\nassert back.found().__file__ == __file__\n"

    load(tmp_path, source + HANDLER)

    assert sys.modules["inference"].__file__ == str(tmp_path / "inference.py")


def test_program_may_have_the_name_of_a_module_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "json.py"
    file.write_text(HANDLER)

    assert isinstance(load_hooks(file, tmp_path), WholeHook)
    assert sys.modules["json"].__file__ != str(file)


@pytest.mark.parametrize(
    "name",
    [
        "app",
        "hooks",
        "service",
        "settings",
        "errors",
        "logs",
        "control",
        "container",
        "sagemaker",
        "utils",
        "model",
        "context",
    ],
)
def test_modules_of_the_user_may_have_any_of_our_names(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("WHOSE = 'the user'\n")

    load(tmp_path, f"import {name}\nassert {name}.WHOSE == 'the user'\n" + HANDLER)


def test_relative_import_fails_with_pythons_reason(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")

    with pytest.raises(UserCodeError, match="attempted relative import with no known parent package"):
        load(tmp_path, "from . import beside\n" + HANDLER)


@pytest.mark.parametrize(
    "source",
    [
        "async def handler(data, context): return b''\n",
        "async def handler(data, context): yield b''\n",
        "import functools\nasync def f(a, data, context): pass\nhandler = functools.partial(f, 1)\n",
        "class H:\n    async def __call__(self, data, context): pass\nhandler = H()\n",
        "async def input_handler(data, context): return b''\n" + OUTPUT,
        "async def model_fn(model_dir): return 1\n",
    ],
)
def test_async_functions_are_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(HookShapeError, match=r"is async, and hooks are called without an event loop; wanted"):
        load(tmp_path, source)


def test_input_handler_cannot_be_a_generator(tmp_path: Path) -> None:
    with pytest.raises(HookShapeError, match=r"input_handler in inference.py is a generator"):
        load(tmp_path, "def input_handler(data, context): yield b''\n" + OUTPUT)


@pytest.mark.parametrize("source", [HANDLER, INPUT + OUTPUT, INPUT])
def test_functions_of_the_toolkit_beside_others_are_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(HookShapeError, match=r"defines \w+.* and model_fn and predict_fn; wanted is either"):
        load(tmp_path, source + "def model_fn(d): pass\ndef predict_fn(data, model): pass\n")


def test_functions_of_the_toolkit_are_hooks(tmp_path: Path) -> None:
    assert isinstance(load(tmp_path, "def model_fn(model_dir): pass\n"), ToolkitHooks)


def test_decorated_functions_and_generators_are_hooks(tmp_path: Path) -> None:
    source = (
        "import functools\n"
        "def logged(function):\n"
        "    @functools.wraps(function)\n"
        "    def wrapper(*args, **kwargs): return function(*args, **kwargs)\n"
        "    return wrapper\n"
        "@logged\n"
        "def handler(data, context):\n    yield b''\n"
    )

    assert isinstance(load(tmp_path, source), WholeHook)
