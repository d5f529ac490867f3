from __future__ import annotations

from pathlib import Path

import pytest

from pierhead.contract.toolkit import defines_toolkit_functions


@pytest.mark.parametrize(
    "source",
    [
        "def model_fn(model_dir): pass\n",
        "from my_model import model_fn\n",
        "from my_model import load as model_fn, other\n",
        "import my_model as transform_fn\n",
        "predict_fn = lambda data, model: data\n",
        "import my_model\ntry:\n    input_fn = my_model.read\nexcept AttributeError:\n    pass\n",
        "if True:\n    def output_fn(prediction, accept): pass\n",
        "a, predict_fn = 1, print\n",
        "predict_fn: object = print\n",
        "def model_fn(:\n",
        "\0",
    ],
)
def test_functions_are_found_however_they_are_bound(tmp_path: Path, source: str) -> None:
    (tmp_path / "inference.py").write_text(source)

    assert defines_toolkit_functions(tmp_path / "inference.py")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def handler(data, context): pass\n",
        "def handler(data, context):\n    model_fn = 1\n    def predict_fn(): pass\n",
        "class Model:\n    def predict_fn(self): pass\n",
        "import my_model\nmy_model.predict_fn()\nprint(my_model.model_fn)\n",
        "text = 'def model_fn(model_dir): pass'\n",
        "load = lambda model_fn: model_fn\n",
    ],
)
def test_what_is_only_mentioned_is_not_defined(tmp_path: Path, source: str) -> None:
    (tmp_path / "inference.py").write_text(source)

    assert not defines_toolkit_functions(tmp_path / "inference.py")


def test_file_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "inference.py").write_text("raise SystemExit(3)\n")

    assert not defines_toolkit_functions(tmp_path / "inference.py")
