"""The folder that holds the stack's sockets and generated files: made at the start, emptied at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pierhead.errors import ConfigError

__all__ = ["LONGEST_SOCKET_PATH", "RunFolder"]

LONGEST_SOCKET_PATH = 107
# A million loads, and a hundred servers, whose sockets take the place of older ones.
LONGEST_MODEL_SOCKET = "999999/99.sock.new"
CONTENT = (
    "health.sock",
    "control.sock",
    "workers.sock",
    "workers.json",
    "nginx.conf",
    "models.config",
    "batching.config",
    "metrics.sock",
    "monitoring.config",
    "requests.pipe",
    "access.pipe",
    "metrics",
    "nginx",
    "environment",
    "temporary",
    "models.sock",
    "models",
    "loaded",
    "direct",
    "universal",
)


class RunFolder:
    """Paths of what the stack makes; nothing else in the folder is touched."""

    def __init__(self, path: Path, *, is_private: bool) -> None:
        self.path = path
        self._is_private = is_private
        self.health_socket = path / "health.sock"
        self.control_socket = path / "control.sock"
        self.workers_socket = path / "workers.sock"
        self.workers_plan = path / "workers.json"
        self.nginx_config = path / "nginx.conf"
        self.model_config = path / "models.config"
        self.batching_config = path / "batching.config"
        self.metrics_socket = path / "metrics.sock"
        self.monitoring_config = path / "monitoring.config"
        self.request_pipe = path / "requests.pipe"
        self.access_pipe = path / "access.pipe"
        self.worker_metrics = path / "metrics"
        self.nginx = path / "nginx"
        self.environment = path / "environment"
        self.temporary = path / "temporary"
        self.models_socket = path / "models.sock"
        self.models = path / "models"
        self.loaded = path / "loaded"
        self.direct = path / "direct"
        self.universal = path / "universal"

    @classmethod
    def make(cls, wanted: Path | None) -> RunFolder:
        """Make the folder, a fresh one where none is wanted; raise ConfigError where that cannot be."""
        try:
            path = wanted or Path(tempfile.mkdtemp(prefix="pierhead-"))
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, is_private=wanted is None)
            run.remove_content()
            run.nginx.mkdir()
            run.worker_metrics.mkdir(mode=0o700)
        except OSError as problem:
            raise ConfigError([f"PIERHEAD_RUN_DIR={str(wanted or '')!r}: {problem}"]) from problem
        if set(str(path)) & {"$", "\n"}:
            raise ConfigError(
                [f"PIERHEAD_RUN_DIR={str(path)!r}: must not hold a dollar sign or a line break"]
            )
        run._require_short(run.workers_socket)
        run.admit_nginx()
        return run

    @property
    def universal_code(self) -> Path:
        """Where the universal script of a multi-model endpoint is downloaded to."""
        return self.universal / "code"

    def temporary_environment(self) -> dict[str, str]:
        """Return where children put temporary files, if the system has no folder for them.

        TensorFlow cannot be imported without one, and a file system may be read-only but for the run folder.
        """
        try:
            tempfile.gettempdir()
        except FileNotFoundError:
            self.temporary.mkdir(exist_ok=True)
            return {"TMPDIR": str(self.temporary)}
        return {}

    def make_model_folders(self) -> None:
        """Make the folders that a multi-model endpoint's models have; may raise ConfigError."""
        self._require_short(self.models / LONGEST_MODEL_SOCKET)
        for folder in (self.models, self.loaded, self.direct, self.universal):
            folder.mkdir(mode=0o711)

    def admit_nginx(self) -> None:
        """Let nginx's workers, which run as another user when we are root, reach the sockets."""
        if os.geteuid() == 0:
            self.path.chmod(0o711)

    def _require_short(self, socket: Path) -> None:
        if len(os.fsencode(socket)) > LONGEST_SOCKET_PATH:
            raise ConfigError(
                [f"PIERHEAD_RUN_DIR={str(self.path)!r}: too long, the path of a unix socket holds 107 bytes"]
            )

    def remove_content(self) -> None:
        """Remove what a stack made here, also an earlier one that was killed."""
        for name in CONTENT:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all that was made, and the folder itself where it was made here."""
        self.remove_content()
        if self._is_private:
            shutil.rmtree(self.path, ignore_errors=True)
