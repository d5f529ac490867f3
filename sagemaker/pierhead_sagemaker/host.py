"""One container, run as SageMaker runs it, but as plain processes from the checkout.

The program `serve` gets its files and ports by environment variables, leads a process group of its own, and
is stopped by SIGTERM, then SIGKILL 30 s later. Source: SageMaker's platform contract, section 1.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pierhead.errors import StartError
from pierhead_sagemaker.opt_ml import OptMl
from pierhead_sagemaker.ports import PortRange, free_range

__all__ = ["Container", "container_environment", "find_serve", "model_server_ports"]

STOP_SECONDS = 30.0
PING_SECONDS = 2.0
STDERR = 2
INSTANCE_COUNT_VARIABLE = "SAGEMAKER_TFS_INSTANCE_COUNT"


def find_serve() -> Path:
    """Return the program that the image runs, in the checkout that `pierhead` is installed from."""
    spec = importlib.util.find_spec("pierhead")
    if spec is None or spec.origin is None:
        raise StartError("the package pierhead is not installed")
    program = Path(spec.origin).resolve().parents[2] / "serve"
    if not program.is_file():
        raise StartError(f"{program} is not there: install pierhead from its checkout with `pip install -e`")
    return program


def model_server_ports(environ: Mapping[str, str]) -> PortRange:
    """Return a free pair of ports for each model server that these variables ask for."""
    count = environ.get(INSTANCE_COUNT_VARIABLE, "1")
    # Text that is no number is left for the container to refuse, with its own message.
    instances = int(count) if count.isascii() and count.isdigit() else 1
    return free_range(2 * max(1, min(instances, 1024)))


def container_environment(
    environ: Mapping[str, str], tree: OptMl, *, port: int, ports: PortRange
) -> dict[str, str]:
    """Return the user's variables with what the platform sets.

    The folder of this interpreter leads PATH, so that `serve` runs in the environment the command runs in.
    """
    return {
        **environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", os.defpath)]),
        "SAGEMAKER_BASE_DIR": str(tree.base),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SAGEMAKER_SAFE_PORT_RANGE": str(ports),
        "PIERHEAD_RUN_DIR": str(tree.run),
    }


class Container:
    """A running container. Its log, both streams of it, goes to this process's stderr unchanged."""

    def __init__(self, program: Path, environment: Mapping[str, str]) -> None:
        """Start the program; raises StartError where it cannot be run."""
        self.port = int(environment["SAGEMAKER_BIND_TO_PORT"])
        try:
            self._process = subprocess.Popen(
                [program],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
                # Ctrl-C in a terminal reaches a whole process group; the container is to hear of it from us.
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"{program} cannot be run: {error.strerror}") from error

    def exit_status(self) -> int | None:
        """Return the status it ended with, as a shell tells it (128 + signal), or None while it runs."""
        status = self._process.poll()
        return status if status is None or status >= 0 else 128 - status

    def is_ready(self) -> bool:
        """Tell whether GET /ping answers 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PING_SECONDS)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self, is_hurried: Callable[[float], bool]) -> None:
        """End it: SIGTERM, then SIGKILL after 30 s or once `is_hurried`, which waits as told, is true."""
        deadline = time.monotonic() + STOP_SECONDS
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        while self._process.poll() is None and time.monotonic() < deadline:
            if is_hurried(0.1):
                break
        # Also where it has ended: a supervisor that was killed leaves nginx and its port behind.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
