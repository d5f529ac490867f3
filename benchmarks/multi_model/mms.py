"""multi-model-server in SageMaker's multi-model mode: a Java front with one Python worker for each model."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.multi_model.endpoint import Endpoint, Start, names_of_models, serving
from benchmarks.multi_model.environments import MULTI_MODEL_SERVER, Unavailable, environment
from benchmarks.servers import free_port

__all__ = ["TITLE", "multi_model_server"]

TITLE = "multi-model-server 1.1.11"

# It refuses a port above 32,767.
PORTS = range(18_600, 18_700)
PEERS = Path(__file__).parent / "peers"
# As SageMaker's own containers set it, but for the address.
CONFIGURATION = """\
vmargs=-XX:-UseContainerSupport
model_store={store}
inference_address=http://127.0.0.1:{port}
management_address=http://127.0.0.1:{port}
default_workers_per_model=1
async_logging=true
decode_input_request=false
"""


@contextmanager
def multi_model_server(folder: Path, models: int) -> Iterator[Endpoint]:
    """Run the server with models to be loaded; raise Unavailable where it cannot be had."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise Unavailable("there is no Java")
    python = environment(MULTI_MODEL_SERVER) / "bin" / "python"
    store, scratch, port = folder / "store", folder / "scratch", free_port(PORTS)
    for each in (store, scratch):
        each.mkdir(parents=True)
    _archive(python, folder, store, models)
    configuration = folder / "config.properties"
    configuration.write_text(CONFIGURATION.format(store=store, port=port))
    command = [str(python), "-m", "mms.model_server", "--foreground", "--mms-config", str(configuration)]
    environ = {"SAGEMAKER_MULTI_MODEL": "true", "TMPDIR": str(scratch), "TEMP": str(scratch)}
    body: dict[str, object] = {"instances": [1.0, 2.0, 5.0]}
    start = Start(TITLE, command, environ, folder, port, body, url=str)
    with serving(start) as endpoint:
        yield endpoint


def _archive(python: Path, folder: Path, store: Path, models: int) -> None:
    """Write a model's archive, as a folder, once for each name."""
    sources, archives = folder / "sources", folder / "archives"
    for each in (sources, archives):
        each.mkdir()
    shutil.copy(PEERS / "half_service.py", sources)
    command = [str(python), "-m", "model_archiver.model_packaging", "--model-name", "half"]
    command += ["--model-path", str(sources), "--handler", "half_service:handle"]
    command += ["--archive-format", "no-archive", "--export-path", str(archives)]
    subprocess.run(command, check=True, capture_output=True)
    for name in names_of_models(models):
        shutil.copytree(archives / "half", store / name)
