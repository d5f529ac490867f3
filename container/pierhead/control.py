"""The whole vocabulary that the programs of the stack speak among themselves.

Messages are frozen dataclasses, one JSON object a line: `{"message": "WorkerReady", "pid": 17}`. Handler
workers and model servers speak to the supervisor over its control socket, one report and one answer a
connection; the nursery over the socket it inherits. A plan is a file that the supervisor writes before it
starts the reader; that of a loaded model is also what tells shared handler workers where its servers are.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pierhead.errors import ControlError

__all__ = [
    "ANSWER_SECONDS",
    "HANDLER_WORKERS",
    "LONGEST_MESSAGE",
    "Accepted",
    "ForkFailed",
    "ForkServer",
    "Forked",
    "Message",
    "ModelPlan",
    "NurseryReady",
    "ServerAddress",
    "ServicePlan",
    "StartFailed",
    "WorkerGone",
    "WorkerReady",
    "decode",
    "encode",
    "read_plan",
    "send",
    "write_plan",
]

HANDLER_WORKERS = "handler-workers"
ANSWER_SECONDS = 5.0
LONGEST_MESSAGE = 1 << 20


@dataclass(frozen=True)
class WorkerReady:
    """A handler worker has imported the hooks and takes requests; `process` is the plan's."""

    pid: int
    process: str = HANDLER_WORKERS


@dataclass(frozen=True)
class WorkerGone:
    """A handler worker has ended; `signal` is what killed it, 0 where nothing did."""

    pid: int
    signal: int = 0
    process: str = HANDLER_WORKERS


@dataclass(frozen=True)
class StartFailed:
    """A process of a model ends because it cannot serve: a canonical code, and a sentence for users."""

    process: str
    code: int
    reason: str


@dataclass(frozen=True)
class Accepted:
    """The supervisor's answer to a report."""


@dataclass(frozen=True)
class NurseryReady:
    """The nursery has imported TensorFlow and can fork model servers."""


@dataclass(frozen=True)
class ForkServer:
    """Fork a model server called `name` with these command-line arguments."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Forked:
    """The model server `name` runs as `pid`, a child of the supervisor."""

    name: str
    pid: int


@dataclass(frozen=True)
class ForkFailed:
    """The system has no room for the model server `name`; `error_number` is its errno."""

    name: str
    error_number: int


Message = WorkerReady | WorkerGone | StartFailed | Accepted | NurseryReady | ForkServer | Forked | ForkFailed
MESSAGES: dict[str, type[Any]] = {kind.__name__: kind for kind in Message.__args__}


@dataclass(frozen=True)
class ServerAddress:
    """Where one model server listens, on loopback."""

    grpc_port: int
    rest_port: int


@dataclass(frozen=True)
class ModelPlan:
    """A model that the model servers serve, and its versions on disk, ascending."""

    name: str
    versions: tuple[int, ...]


@dataclass(frozen=True)
class ServicePlan:
    """All that the handler workers need to know.

    `settings` is what `Settings.from_env` reads; `process` is the name of their master at the supervisor.
    `code` is the folder with the user's hooks and `hooks` the file in it, both None where requests get the
    default handler. `loaded` is None but for the shared workers of a multi-model endpoint: the folder in
    which `loaded/NAME/plan.json` is the plan of each loaded model. Theirs names no servers and no models.
    """

    settings: dict[str, str]
    socket: str
    control_socket: str
    servers: tuple[ServerAddress, ...]
    models: tuple[ModelPlan, ...]
    default_model: str
    code: str | None
    hooks: str | None
    loaded: str | None = None
    process: str = HANDLER_WORKERS


def encode(message: Message) -> bytes:
    """Return the message as one line."""
    return json.dumps({"message": type(message).__name__, **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of one line; raise ControlError where it is none."""
    try:
        values = json.loads(line)
        kind = MESSAGES[values.pop("message")]
        message: Message = kind(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ControlError(f"not a control message: {line[:200]!r}") from problem
    return message


def send(control_socket: str, message: Message) -> Message:
    """Send one message to the supervisor and return its answer; raise ControlError without one."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(control_socket)
            connection.sendall(encode(message))
            with connection.makefile("rb") as lines:
                line = lines.readline(LONGEST_MESSAGE)
    except OSError as problem:
        raise ControlError(f"the supervisor did not answer: {problem}") from problem
    return decode(line)


def write_plan(plan: ServicePlan, path: Path) -> None:
    """Write the plan to a file that replaces an older one whole."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(plan), indent=1))
    fresh.replace(path)


def read_plan(path: Path) -> ServicePlan:
    """Return the plan in a file; raise ControlError where there is none."""
    try:
        values = json.loads(path.read_text())
        values["servers"] = tuple(ServerAddress(**server) for server in values["servers"])
        values["models"] = tuple(
            ModelPlan(model["name"], tuple(model["versions"])) for model in values["models"]
        )
        return ServicePlan(**values)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ControlError(f"{path} holds no plan: {problem}") from problem
