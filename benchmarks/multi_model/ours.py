"""Pierhead, as a user of the checkout runs it: `./serve`, with many models or with one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.multi_model.endpoint import Endpoint, Start, serving
from benchmarks.servers import CHECKOUT, free_port

__all__ = ["TITLE", "pierhead", "pierhead_with_one_model", "run_folder"]

TITLE = "Pierhead"
BODY: dict[str, object] = {"instances": [1.0, 2.0, 5.0]}
# Below those that the system or the tests hand out; two for each model server.
PORTS, PORTS_FOR_ONE = "19000-19899", "19900-19999"


@contextmanager
def pierhead(folder: Path, artifacts: Mapping[str, Path], ports: str = PORTS) -> Iterator[Endpoint]:
    """Run the stack with models to be loaded, by name; `ports` is the range for model servers."""
    models = folder / "ml" / "models"
    for name, artifact in artifacts.items():
        # A load request may not lead out of this folder, by a link neither.
        shutil.copytree(artifact, models / name / "model")
    environ = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_SAFE_PORT_RANGE": ports}
    with serving(_start(folder, environ, lambda name: str(models / name / "model"))) as endpoint:
        yield endpoint


@contextmanager
def pierhead_with_one_model(folder: Path, artifact: Path) -> Iterator[Endpoint]:
    """Run the stack on one model, which answers at /invocations."""
    (folder / "ml").mkdir(parents=True)
    (folder / "ml" / "model").symlink_to(artifact)
    with serving(_start(folder, {"SAGEMAKER_SAFE_PORT_RANGE": PORTS_FOR_ONE}, str)) as endpoint:
        yield endpoint


def run_folder(folder: Path) -> Path:
    """Return where a stack that was started in `folder` keeps its sockets and files."""
    return folder / "run"


def _start(folder: Path, environ: Mapping[str, str], url: Callable[[str], str]) -> Start:
    own = {
        "SAGEMAKER_BASE_DIR": str(folder / "ml"),
        "PIERHEAD_RUN_DIR": str(run_folder(folder)),
        **environ,
    }
    port = free_port()
    own["SAGEMAKER_BIND_TO_PORT"] = str(port)
    return Start(TITLE, [str(CHECKOUT / "serve")], own, folder, port, BODY, url)
