"""Artifacts with hooks, made for tests: a model by symbolic link, and a code folder by text."""

from __future__ import annotations

import textwrap
from pathlib import Path

PASSING_THROUGH = """
    def input_handler(data, context):
        return data.read()


    def output_handler(response, context):
        return response.content, context.accept_header
    """
CONVERTING = """
    import csv
    import io
    import json


    def input_handler(data, context):
        text = data.read().decode()
        if context.request_content_type == "text/csv":
            return json.dumps({"instances": [float(row[0]) for row in csv.reader(io.StringIO(text))]})
        if context.request_content_type == "application/jsonlines":
            return json.dumps({"instances": [json.loads(line) for line in text.splitlines()]})
        return text


    def output_handler(response, context):
        if response.status_code != 200:
            raise ValueError(response.content.decode())
        return response.content, "application/json"
    """


def artifact_with_hooks(folder: Path, model: Path, inference: str, **files: str) -> Path:
    """Return a new artifact in `folder`: the models of `model`, and `code/inference.py` with this text.

    Further files of the code folder are given by their names, with `_` for the dot.
    """
    artifact = folder / "artifact"
    code = artifact / "code"
    code.mkdir(parents=True)
    for entry in model.iterdir():
        if entry.is_dir():
            (artifact / entry.name).symlink_to(entry)
    (code / "inference.py").write_text(textwrap.dedent(inference))
    for name, text in files.items():
        (code / name.replace("_", ".")).write_text(text)
    return artifact


def artifact_of_code(folder: Path, inference: str) -> Path:
    """Return a new artifact in `folder` that is `code/inference.py` alone."""
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(textwrap.dedent(inference))
    return folder


def model_for_the_stub(folder: Path) -> Path:
    """Return a new artifact in `folder` with a model for the stub alone: nothing has to be built."""
    version = folder / "models" / "half_plus_two" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"")
    return folder / "models"


def stub_model(folder: Path, **knobs: str) -> Path:
    """Return a new artifact in `folder` for the stub alone: a model of one version, with knobs of its own."""
    model = folder / "half_plus_two"
    (model / "1").mkdir(parents=True)
    (model / "1" / "saved_model.pb").write_bytes(b"")
    (model / "knobs").write_text("".join(f"{name}={value}\n" for name, value in knobs.items()))
    return folder
