"""Triton in SageMaker's multi-model mode, from PyPI: there with its python backend alone.

It takes models below /opt/ml/models only, so links are made there and removed again; and it has no setting
for the address of its SageMaker port, which is open on all of them while this runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.multi_model.endpoint import Endpoint, Start, names_of_models, serving
from benchmarks.multi_model.environments import TRITON, Unavailable, environment
from benchmarks.servers import free_port

__all__ = ["TITLE", "triton"]

TITLE = "Triton 2.51.0"

PEERS = Path(__file__).parent / "peers"
MODELS = Path("/opt/ml/models")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
FLAGS = (
    "--model-control-mode=explicit",
    "--model-namespacing=true",
    "--allow-http=false",
    "--allow-grpc=false",
    "--allow-metrics=false",
    "--allow-sagemaker=true",
)


@contextmanager
def triton(folder: Path, models: int) -> Iterator[Endpoint]:
    """Run the server with models to be loaded; raise Unavailable where it cannot be had."""
    virtual, port = environment(TRITON), free_port()
    server = virtual / "lib" / f"python{PYTHON}" / "site-packages" / "pytriton" / "tritonserver"
    backends, repository = folder / "backends", folder / "repository"
    repository.mkdir(parents=True)
    _link_backend(server, backends / "python")
    directories = [f"--model-repository={repository}", f"--backend-directory={backends}"]
    command = [str(server / "bin" / "tritonserver"), *directories, *FLAGS, f"--sagemaker-port={port}"]
    body: dict[str, object] = {
        "inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1.0, 2.0, 5.0]}]
    }
    with _linked_models(folder, models) as prefix:
        start = Start(
            TITLE, command, _environ(virtual), folder, port, body, lambda name: f"{prefix}{name}/model"
        )
        with serving(start) as endpoint:
            yield endpoint


def _link_backend(server: Path, target: Path) -> None:
    stub = server / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
    if not stub.is_file():
        raise Unavailable(f"it has no backend for Python {PYTHON}")
    target.mkdir(parents=True)
    for file in (*(server / "backends" / "python").iterdir(), stub):
        (target / file.name).symlink_to(file)


def _environ(virtual: Path) -> dict[str, str]:
    libraries = [sysconfig.get_config_var("LIBDIR") or "", os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        "PATH": f"{virtual / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "SAGEMAKER_TRITON_PING_MODE": "live",
    }


@contextmanager
def _linked_models(folder: Path, models: int) -> Iterator[str]:
    """Yield what stands before a model's name in the path by which the server takes it."""
    prefix = MODELS / f"benchmark{os.getpid()}_"
    links = [Path(f"{prefix}{name}") for name in names_of_models(models)]
    made = [each for each in (MODELS, MODELS.parent) if not each.exists()]
    try:
        MODELS.mkdir(parents=True, exist_ok=True)
        for link in links:
            artifact = folder / "models" / link.name
            shutil.copytree(PEERS / "triton_model", artifact / "model")
            link.symlink_to(artifact)
    except PermissionError as problem:
        raise Unavailable(f"it takes models in {MODELS} only, which cannot be written") from problem
    try:
        yield str(prefix)
    finally:
        for link in links:
            link.unlink()
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()
