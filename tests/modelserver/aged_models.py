"""The SavedModels of `build_aged_models.py`, built once a run, and what a server is told of them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pierhead.serving_stubs import ServingStubs

BUILDER = Path(__file__).with_name("build_aged_models.py")


def build_aged_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that holds the models, each with version 1."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "aged"
    with (shared / "aged.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            command = [sys.executable, str(BUILDER), str(folder)]
            subprocess.run(command, check=True, capture_output=True, timeout=150)
    return folder


def reload_request(stubs: ServingStubs, *base_paths: Path, **labels: int) -> Any:
    """Return the request to serve these models, each by the name of its folder, all with these labels."""
    request = stubs.model_management.ReloadConfigRequest()
    for base_path in base_paths:
        entry = request.config.model_config_list.config.add(
            name=base_path.name, base_path=str(base_path), model_platform="tensorflow"
        )
        entry.version_labels.update(labels)
    return request


def config_text(*base_paths: Path) -> str:
    """Return a config file's text for the same."""
    entries = "".join(
        f"config {{ name: '{each.name}' base_path: '{each}' model_platform: 'tensorflow' }}\n"
        for each in base_paths
    )
    return f"model_config_list {{\n{entries}}}\n"
