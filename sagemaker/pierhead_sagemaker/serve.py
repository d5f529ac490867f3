"""`pierhead serve`: run an artifact on this machine as a SageMaker endpoint's container would.

In order: check, start, wait until /ping says ready, tell what is served and how to call it, wait for Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pierhead.errors import StartError
from pierhead_sagemaker.check import inspect_tree
from pierhead_sagemaker.host import Container, container_environment, find_serve, model_server_ports
from pierhead_sagemaker.inspection import Inspection
from pierhead_sagemaker.interrupts import Interrupts
from pierhead_sagemaker.opt_ml import lay_tree, private_folder
from pierhead_sagemaker.ports import PortRange, require_free_port
from pierhead_sagemaker.signatures import fetch_signatures
from pierhead_sagemaker.terminal import Progress, complain, say
from pierhead_sagemaker.welcome import welcome_text

__all__ = ["add_parser", "run", "serve_artifact"]

# SageMaker's own limit for a container that never answers /ping.
READY_SECONDS = 480
POLL_SECONDS = 0.2

DESCRIPTION = """\
Run ARTIFACT as a container on this machine, without Docker: nginx, the handler workers where there is a
code/inference.py, and the model servers. Once it is ready, the address, the models with their signatures and
a request to try are shown. The container's log goes to stderr. Ctrl-C stops everything; a second one hastens.

The container sees this shell's environment variables, so SAGEMAKER_* settings can be given before the command
or with --env."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "serve",
        help="serve an artifact on this machine, as an endpoint would",
        description=DESCRIPTION,
        epilog="example:\n  pierhead serve model.tar.gz --port 8081 --env SAGEMAKER_TFS_ENABLE_BATCHING=true",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "artifact", metavar="ARTIFACT", type=Path, help="a model.tar.gz, or the folder it unpacks to"
    )
    parser.add_argument("--port", type=_port, default=8080, help="the port to listen on (default: 8080)")
    parser.add_argument("--instances", type=_count, metavar="N", help="model-server processes for each model")
    parser.add_argument(
        "--workers", type=_count, metavar="N", help="handler workers, for artifacts with hooks"
    )
    parser.add_argument(
        "--env",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a variable for the container; may be repeated, and wins over the options above",
    )
    parser.add_argument("--verbose", action="store_true", help="let the container log at the level debug")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve as the command line says; returns the exit status."""
    return serve_artifact(options.artifact, {**os.environ, **_variables(options)}, port=options.port)


def serve_artifact(
    artifact: Path, environ: Mapping[str, str], *, port: int, program: Path | None = None
) -> int:
    """Serve until interrupted (returns 0) or until the container ends by itself (returns its status).

    Raises ArtifactError or StartError where nothing was started.
    """
    if environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true":
        raise StartError("SAGEMAKER_MULTI_MODEL=true: this serves one artifact; ./serve loads many on demand")
    with private_folder() as folder:
        tree = lay_tree(artifact, folder)
        inspection = inspect_tree(artifact, tree, environ)
        require_free_port(port)
        ports = model_server_ports(environ)
        environment = container_environment(environ, tree, port=port, ports=ports)
        with Interrupts() as interrupts:
            container = Container(program or find_serve(), environment)
            try:
                return _watch(container, interrupts, lambda: _welcome(container, inspection, ports, folder))
            finally:
                container.stop(interrupts.wait)


def _watch(container: Container, interrupts: Interrupts, welcome: Callable[[], str]) -> int:
    status = _wait_ready(container, interrupts)
    if status is None:
        say(welcome())
        status = _wait_end(container, interrupts)
    return status


def _wait_ready(container: Container, interrupts: Interrupts) -> int | None:
    """Return None once the container is ready, or the exit status of the command where it will not be."""
    progress = Progress("starting the container", sys.stderr)
    try:
        while not container.is_ready():
            if (status := container.exit_status()) is not None:
                complain(f"pierhead: the container ended before it was ready, with status {status}.")
                return status or 1
            if progress.seconds > READY_SECONDS:
                complain(f"pierhead: the container was not ready after {READY_SECONDS} s, SageMaker's limit.")
                return 1
            progress.show()
            if interrupts.wait(POLL_SECONDS):
                return _stopping()
    finally:
        progress.clear()
    return None


def _wait_end(container: Container, interrupts: Interrupts) -> int:
    while not interrupts.wait(POLL_SECONDS):
        if (status := container.exit_status()) is not None:
            complain(f"pierhead: the container ended by itself, with status {status}.")
            return status
    return _stopping()


def _stopping() -> int:
    complain("pierhead: stopping; Ctrl-C hastens it.")
    return 0


def _welcome(container: Container, inspection: Inspection, ports: PortRange, folder: Path) -> str:
    signatures = {
        model.name: fetch_signatures(ports.first_rest_port, model.name)
        for model in inspection.artifact.models
    }
    return welcome_text(f"http://127.0.0.1:{container.port}", inspection, signatures, folder=folder)


def _variables(options: argparse.Namespace) -> dict[str, str]:
    variables: dict[str, str] = {}
    if options.instances is not None:
        variables["SAGEMAKER_TFS_INSTANCE_COUNT"] = str(options.instances)
    if options.workers is not None:
        variables["SAGEMAKER_GUNICORN_WORKERS"] = str(options.workers)
    if options.verbose:
        # SageMaker's tools write this level as a number, so every container understands it.
        variables["SAGEMAKER_CONTAINER_LOG_LEVEL"] = "10"
    return {**variables, **dict(options.env)}


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1024")
    return int(text)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value
