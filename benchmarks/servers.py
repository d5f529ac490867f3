"""Servers in processes of their own, and the processor time that they have used."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import family

__all__ = ["Server", "constant_server", "free_port", "model_server", "models_server", "running"]

START_SECONDS = 90.0
STOP_SECONDS = 40.0
CHECKOUT = Path(__file__).resolve().parents[1]
# Of the fields of /proc/PID/stat that follow the command: user and system time, in ticks.
USER_TIME, SYSTEM_TIME = 11, 12


@dataclass(frozen=True)
class Server:
    """A server that listens."""

    pid: int
    rest_port: int
    grpc_port: int = 0

    def cpu_seconds(self) -> float:
        """Return the processor time that the process and its threads have used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def model_server(name: str, base_path: Path, *flags: str) -> Iterator[Server]:
    """Start the embedded model server with one model, and stop it afterwards."""
    with _embedded_server(f"--model_name={name}", f"--model_base_path={base_path}", *flags) as server:
        yield server


@contextmanager
def models_server(folder: Path, names: Sequence[str]) -> Iterator[Server]:
    """Start the embedded model server with the models of a folder, and stop it afterwards."""
    platform = 'model_platform: "tensorflow"'
    models = "".join(
        f'config {{ name: "{name}" base_path: "{folder / name}" {platform} }}\n' for name in names
    )
    config = folder / "models.config"
    config.write_text(f"model_config_list {{\n{models}}}\n")
    with _embedded_server(f"--model_config_file={config}") as server:
        yield server


@contextmanager
def constant_server() -> Iterator[Server]:
    """Start the server whose answer is always the same, and stop it afterwards."""
    port = free_port()
    with running([sys.executable, "-m", "benchmarks.constant", str(port)], port) as pid:
        yield Server(pid, port)


@contextmanager
def _embedded_server(*flags: str) -> Iterator[Server]:
    rest, grpc = free_port(), free_port()
    ports = [f"--rest_api_port={rest}", f"--port={grpc}", "--bind_address=127.0.0.1"]
    with running([sys.executable, "-m", "pierhead.modelserver", *ports, *flags], rest) as pid:
        yield Server(pid, rest, grpc)


def free_port(candidates: Iterable[int] = (0,)) -> int:
    """Return a port on which nobody listens now: the first such candidate, or any."""
    for candidate in candidates:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", candidate))
            port: int = probe.getsockname()[1]
            return port
    raise RuntimeError("no port is free")


@contextmanager
def running(
    command: list[str], port: int, environ: Mapping[str, str] | None = None, folder: Path = CHECKOUT
) -> Iterator[int]:
    """Run a server in a folder until the block ends; yield its pid when it listens on the port."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **(environ or {})},
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            if not _is_listening_at_last(process, port):
                log.seek(0)
                raise RuntimeError(f"{process.args!r} did not start:\n{log.read().decode()[-2000:]}")
            yield process.pid
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a server, and then whatever of its family has outlived it."""
    with ExitStack() as files:
        members = [_opened(pid, files) for pid in family(process.pid)]
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(member, signal.SIGKILL)


def _opened(pid: int, files: ExitStack) -> int:
    """Return a file that stands for this process, and never for another with its number."""
    file = os.pidfd_open(pid)
    files.callback(os.close, file)
    return file


def _is_listening_at_last(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until somebody listens, and return whether that came to pass."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
