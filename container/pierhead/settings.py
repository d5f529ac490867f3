"""The one table of settings, and the only reader of the environment.

Each setting is declared once, as a field of `Settings`: the variable, how its text is read, its default and a
sentence. Reading, the list at start-up, the manual's table and the warnings about unknown names all derive
from it. Sources of names, meanings and defaults: the TensorFlow Serving image's contract (Configuration),
SageMaker's platform contract (Env vars) and the Triton container's start script.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pierhead.contract.version_labels import VersionLabels, parse_version_labels
from pierhead.errors import ConfigError
from pierhead.gunicorn_arguments import read_gunicorn_arguments

__all__ = [
    "LOG_DESCRIPTOR",
    "STANDARD_ERROR",
    "TABLE",
    "LogSettings",
    "PortRange",
    "Setting",
    "Settings",
    "available_cpus",
    "inherited_log",
    "log_settings",
    "settings_table",
    "unknown_names",
]

WORD = r"[\w!#%&'*+.^`|~-]+"
MEDIA_RANGE = rf"{WORD}/{WORD}(?:[ \t]*;[ \t]*{WORD}=(?:{WORD}|\"[^\"$\\\n]*\"))*"
MEDIA_RANGES = re.compile(rf"{MEDIA_RANGE}(?:[ \t]*,[ \t]*{MEDIA_RANGE})*", re.ASCII)
LONGEST_SECONDS = 2_000_000  # nginx counts milliseconds in 32 bits
Parser = Callable[[str], Any]
OWNED_PREFIXES = ("SAGEMAKER_TFS_", "SAGEMAKER_GUNICORN_", "SAGEMAKER_NGINX_", "PIERHEAD_")
LOG_VARIABLES = ("SAGEMAKER_CONTAINER_LOG_LEVEL", "PIERHEAD_LOG_FORMAT")
LOG_DESCRIPTOR = "PIERHEAD_LOG_FD"
STANDARD_ERROR = 2
UNBOUNDED_QUEUE = 100_000_000
NGINX_LEVELS = ("debug", "info", "notice", "warn", "error", "crit", "alert", "emerg")
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("text", "json")
METRICS_READERS = ("loopback", "all", "off")
WORKER_CLASSES = ("gevent", "gthread", "sync")
WORKER_CLASS_ADVICE = (
    "must be gevent (many requests at a time in one thread), gthread (SAGEMAKER_GUNICORN_THREADS threads) or "
    "sync (one request at a time); gevent stands in for eventlet and tornado"
)
WORK_GRACE_SECONDS = 2
MODEL_SERVERS = ("auto", "embedded", "tensorflow_model_server", "tritonserver")


@dataclass(frozen=True)
class Setting:
    """One row of the table; `default` is text as a user would write it, empty for unset."""

    variable: str
    parse: Parser
    default: str
    sentence: str
    shown_default: str


@dataclass(frozen=True)
class PortRange:
    """An inclusive range of TCP ports."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


def integer(minimum: int = 0, maximum: int = 2**63 - 1) -> Parser:
    """Return a parser of a whole number within bounds."""
    rule = f"must be a whole number of at least {minimum}"
    if maximum < 2**63 - 1:
        rule = f"must be a whole number from {minimum} to {maximum}"

    def parse(text: str) -> int:
        if not text.isascii() or not text.removeprefix("-").isdigit() or not minimum <= int(text) <= maximum:
            raise ValueError(rule)
        return int(text)

    return parse


def fraction(text: str) -> float:
    """Return a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be a number from 0 to 1")
    return value


def boolean(text: str) -> bool:
    """Return true or false, written in any case."""
    values = {"true": True, "false": False}
    if text.lower() not in values:
        raise ValueError("must be true or false")
    return values[text.lower()]


def choice(*options: str) -> Parser:
    """Return a parser of one word out of a few, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in options:
            raise ValueError(f"must be one of {', '.join(options)}")
        return text.lower()

    return parse


def port_range(text: str) -> PortRange:
    """Return the range written as LOW-HIGH."""
    low, dash, high = text.partition("-")
    try:
        ports = PortRange(integer(1, 65535)(low.strip()), integer(1, 65535)(high.strip()))
    except ValueError:
        ports = PortRange(1, 0)
    if not dash or ports.low > ports.high:
        raise ValueError("must be LOW-HIGH, two ports from 1 to 65535 with LOW not above HIGH")
    return ports


def log_level(text: str) -> str:
    """Return a level's name, from the name or from Python's number for it (20 is info)."""
    numbers = {"10": "debug", "20": "info", "30": "warning", "40": "error", "50": "critical"}
    name = numbers.get(text, text.lower())
    if name not in LOG_LEVELS:
        raise ValueError(f"must be one of {', '.join(LOG_LEVELS)}, or 10, 20, 30, 40, 50")
    return name


def worker_class(text: str) -> str:
    """Return the name of a class of workers that knows this stack; gunicorn's others do not."""
    if text.lower() not in WORKER_CLASSES:
        raise ValueError(WORKER_CLASS_ADVICE)
    return text.lower()


def gunicorn_arguments(text: str) -> str:
    """Return the text, whose words are options of gunicorn that can be used here."""
    read_gunicorn_arguments(text)
    return text


def media_ranges(text: str) -> str:
    """Return an Accept list; it is written into nginx's configuration."""
    if not MEDIA_RANGES.fullmatch(text):
        raise ValueError(
            "must be media types, such as application/json or text/csv;q=0.5, separated by commas"
        )
    return text


def words(text: str) -> str:
    """Return the text as it is."""
    return text


def file_name(text: str) -> str:
    """Return the name of a Python file that lies in the artifact's code folder."""
    if "/" in text or not text.endswith(".py"):
        raise ValueError("must be the name of a Python file, such as inference.py, without a folder")
    return text


def model_name(text: str) -> str:
    """Return a model's name, which becomes a part of a URL's path and of a folder's."""
    if "/" in text or text.startswith("."):
        raise ValueError("must be a model's name, without a slash and not starting with a dot")
    return text


def folder(text: str) -> Path:
    """Return an absolute path; a relative one starts at the working directory."""
    return Path(text).absolute()


def setting(
    variable: str, parse: Parser, default: str, sentence: str, *, shown_default: str | None = None
) -> Any:
    """Return a dataclass field that carries its row of the table."""
    row = Setting(variable, parse, default, sentence, default if shown_default is None else shown_default)
    return field(metadata={"setting": row})


@dataclass(frozen=True)
class LogSettings:
    """How a program writes its log, and to which file descriptor."""

    level: str
    style: str
    descriptor: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings, resolved. A setting without a default is None when it is not set."""

    # Models and model servers
    default_model_name: str | None = setting(
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME",
        model_name,
        "",
        "The model that serves requests which name none.",
        shown_default="from the artifact",
    )
    instance_count: int = setting(
        "SAGEMAKER_TFS_INSTANCE_COUNT", integer(1, 1024), "1", "Model-server processes for each model."
    )
    wait_time_seconds: int = setting(
        "SAGEMAKER_TFS_WAIT_TIME_SECONDS",
        integer(1, LONGEST_SECONDS),
        "60",
        "The longest wait for model servers and handler workers to become ready, in seconds.",
    )
    intra_op_parallelism: int = setting(
        "SAGEMAKER_TFS_INTRA_OP_PARALLELISM",
        integer(),
        "0",
        "Threads that TensorFlow uses within one operation; 0 leaves it to TensorFlow.",
    )
    inter_op_parallelism: int = setting(
        "SAGEMAKER_TFS_INTER_OP_PARALLELISM",
        integer(),
        "0",
        "Operations that TensorFlow runs side by side; 0 leaves it to TensorFlow.",
    )
    fractional_gpu_mem_margin: float = setting(
        "SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN",
        fraction,
        "0.2",
        "The share of a GPU's memory kept back when several model servers share it.",
    )
    omp_num_threads: int = setting("OMP_NUM_THREADS", integer(1), "1", "OpenMP threads of each model server.")
    model_server: str = setting(
        "PIERHEAD_MODEL_SERVER",
        choice(*MODEL_SERVERS),
        "auto",
        "The model server: `auto` takes a tensorflow_model_server found on PATH, else `embedded`.",
    )
    version_labels_set: VersionLabels | None = setting(
        "PIERHEAD_VERSION_LABELS",
        parse_version_labels,
        "",
        "Labels of versions: LABEL=VERSION, or MODEL:LABEL=VERSION for another model, between commas.",
        shown_default="unset",
    )
    # Batching
    enable_batching: bool = setting(
        "SAGEMAKER_TFS_ENABLE_BATCHING", boolean, "false", "Whether the model servers batch requests."
    )
    max_batch_size: int = setting(
        "SAGEMAKER_TFS_MAX_BATCH_SIZE", integer(1), "8", "The most requests in one batch."
    )
    batch_timeout_micros: int = setting(
        "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS",
        integer(),
        "1000",
        "The wait for a batch to fill, in microseconds.",
    )
    num_batch_threads_set: int | None = setting(
        "SAGEMAKER_TFS_NUM_BATCH_THREADS",
        integer(1),
        "",
        "Threads that run batches.",
        shown_default="number of CPUs",
    )
    max_enqueued_batches_set: int | None = setting(
        "SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES",
        integer(1),
        "",
        "Batches that wait before requests are refused.",
        shown_default="number of CPUs; 100000000 in a transform job",
    )
    # Handler workers
    gunicorn_workers: int = setting("SAGEMAKER_GUNICORN_WORKERS", integer(1, 1024), "1", "Handler workers.")
    gunicorn_threads: int = setting(
        "SAGEMAKER_GUNICORN_THREADS",
        integer(1, 1024),
        "1",
        "Threads in each handler worker of the class gthread.",
    )
    gunicorn_worker_class: str = setting(
        "SAGEMAKER_GUNICORN_WORKER_CLASS",
        worker_class,
        "gevent",
        "The handler workers' class: gevent, gthread or sync.",
    )
    gunicorn_timeout_seconds_set: int = setting(
        "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS",
        integer(1, LONGEST_SECONDS),
        "30",
        "The longest that one request may keep its handler worker from all else, in seconds.",
    )
    gunicorn_arguments: str | None = setting(
        "GUNICORN_CMD_ARGS",
        gunicorn_arguments,
        "",
        "Options of gunicorn, such as `--max-requests 1000`; where one has a setting here, the option wins.",
        shown_default="unset",
    )
    gunicorn_loglevel_set: str | None = setting(
        "SAGEMAKER_GUNICORN_LOGLEVEL",
        choice(*LOG_LEVELS),
        "",
        "The handler workers' log level.",
        shown_default="SAGEMAKER_CONTAINER_LOG_LEVEL",
    )
    program: str = setting(
        "SAGEMAKER_PROGRAM", file_name, "inference.py", "The file in `code/` that defines the hooks."
    )
    default_accept: str = setting(
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",
        media_ranges,
        "application/json",
        "The Accept header of requests that have none, or `*/*`.",
    )
    # nginx and the port
    bind_to_port: int = setting(
        "SAGEMAKER_BIND_TO_PORT", integer(1, 65535), "8080", "The port that nginx listens on."
    )
    safe_port_range: PortRange | None = setting(
        "SAGEMAKER_SAFE_PORT_RANGE",
        port_range,
        "",
        "The ports for model servers, LOW-HIGH inclusive: one gRPC and one REST port for each.",
        shown_default="unset: 9000 and 8501 upwards",
    )
    nginx_proxy_read_timeout_set: int = setting(
        "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS",
        integer(1, LONGEST_SECONDS),
        "60",
        "nginx's wait for an answer from behind it, in seconds; never below the handler workers' timeout.",
    )
    nginx_loglevel_set: str | None = setting(
        "SAGEMAKER_TFS_NGINX_LOGLEVEL",
        choice(*NGINX_LEVELS),
        "",
        "The level of nginx's error log; from `warn` up there are no access lines either.",
        shown_default="error; see [the log](logs.md#levels)",
    )
    # Multi-model endpoints
    multi_model: bool = setting(
        "SAGEMAKER_MULTI_MODEL", boolean, "false", "Whether models are loaded and unloaded on demand."
    )
    universal_bucket: str | None = setting(
        "SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET",
        words,
        "",
        "The S3 bucket of the hooks for models that bring none.",
        shown_default="unset",
    )
    universal_prefix: str | None = setting(
        "SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX",
        words,
        "",
        "The S3 prefix of the hooks for models that bring none.",
        shown_default="unset",
    )
    memory_watermark_percent: int = setting(
        "PIERHEAD_MEMORY_WATERMARK_PERCENT",
        integer(1, 100),
        "90",
        "The share of the container's memory that models may fill, in percent: one whose load finds or "
        "leaves more in use is refused with 507; 100 refuses none.",
    )
    # Batch transform
    batch: bool = setting("SAGEMAKER_BATCH", boolean, "false", "Set by SageMaker in transform jobs.")
    max_payload_mb: int | None = setting(
        "SAGEMAKER_MAX_PAYLOAD_IN_MB",
        integer(0, 1_000_000),
        "",
        "The largest request body, in MB; 0 or unset is no limit.",
        shown_default="unset",
    )
    max_decompressed_mb: int = setting(
        "PIERHEAD_MAX_DECOMPRESSED_MB",
        integer(1, 1_000_000),
        "1024",
        "The most that a gzip body, or the arrays of an .npz body, may become, in MB.",
    )
    max_concurrent_transforms: int | None = setting(
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS",
        integer(),
        "",
        "Requests that a transform job sends at the same time.",
        shown_default="unset",
    )
    batch_strategy: str | None = setting(
        "SAGEMAKER_BATCH_STRATEGY",
        choice("multi_record", "single_record", "multirecord", "singlerecord"),
        "",
        "How a transform job groups records.",
        shown_default="unset",
    )
    # Logs
    log_level: str = setting(
        "SAGEMAKER_CONTAINER_LOG_LEVEL",
        log_level,
        "info",
        "The log level of every program of the stack, a name or a number.",
    )
    log_format: str = setting(
        "PIERHEAD_LOG_FORMAT",
        choice(*LOG_FORMATS),
        "text",
        "The form of every line of the log: `text` or `json`.",
    )
    tensorflow_loglevel_set: int | None = setting(
        "TF_CPP_MIN_LOG_LEVEL",
        integer(0),
        "",
        "What TensorFlow itself leaves out of the log: from 0, nothing, to 3, all but its end.",
        shown_default="from SAGEMAKER_CONTAINER_LOG_LEVEL",
    )
    # Triton
    triton_default_model_name: str | None = setting(
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        model_name,
        "",
        "The model that Triton serves at the endpoint.",
        shown_default="the only model",
    )
    triton_ping_mode: str | None = setting(
        "SAGEMAKER_TRITON_OVERRIDE_PING_MODE",
        choice("live", "ready"),
        "",
        "What /ping asks Triton for: `live` or `ready`.",
        shown_default="ready; live with several models",
    )
    triton_inference_type: str = setting(
        "SAGEMAKER_TRITON_INFERENCE_TYPE",
        choice("infer", "generate", "generate_stream"),
        "infer",
        "What an invocation is to Triton.",
    )
    triton_disable_model_namespacing: bool = setting(
        "SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING", boolean, "false", "Whether models share one name space."
    )
    triton_allow_grpc: bool = setting(
        "SAGEMAKER_TRITON_ALLOW_GRPC", boolean, "false", "Whether Triton's gRPC endpoint is on."
    )
    triton_allow_metrics: bool = setting(
        "SAGEMAKER_TRITON_ALLOW_METRICS", boolean, "false", "Whether Triton's metrics endpoint is on."
    )
    triton_grpc_port: int | None = setting(
        "SAGEMAKER_TRITON_GRPC_PORT", integer(1, 65535), "", "Triton's gRPC port.", shown_default="unset"
    )
    triton_metrics_port: int | None = setting(
        "SAGEMAKER_TRITON_METRICS_PORT",
        integer(1, 65535),
        "",
        "Triton's metrics port.",
        shown_default="unset",
    )
    triton_thread_count: int = setting(
        "SAGEMAKER_TRITON_THREAD_COUNT", integer(1), "8", "Threads of Triton's SageMaker endpoint."
    )
    triton_buffer_manager_thread_count: int | None = setting(
        "SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT",
        integer(),
        "",
        "Threads that copy Triton's tensors.",
        shown_default="unset",
    )
    triton_log_verbose: str = setting(
        "SAGEMAKER_TRITON_LOG_VERBOSE", words, "false", "Triton's verbose log: true, false or a level."
    )
    triton_log_info: bool | None = setting(
        "SAGEMAKER_TRITON_LOG_INFO", boolean, "", "Triton's info log.", shown_default="unset"
    )
    triton_log_warning: bool | None = setting(
        "SAGEMAKER_TRITON_LOG_WARNING", boolean, "", "Triton's warning log.", shown_default="unset"
    )
    triton_log_error: bool | None = setting(
        "SAGEMAKER_TRITON_LOG_ERROR", boolean, "", "Triton's error log.", shown_default="unset"
    )
    triton_shm_default_byte_size: int = setting(
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        integer(1),
        "16777216",
        "Shared memory of Triton's python backend at the start, in bytes.",
    )
    triton_shm_growth_byte_size: int = setting(
        "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE",
        integer(1),
        "1048576",
        "Growth of that shared memory, in bytes.",
    )
    triton_tensorflow_version: int | None = setting(
        "SAGEMAKER_TRITON_TENSORFLOW_VERSION",
        integer(1),
        "",
        "The TensorFlow version of Triton's tensorflow backend.",
        shown_default="unset",
    )
    triton_model_load_gpu_limit: float | None = setting(
        "SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT",
        fraction,
        "",
        "The share of a GPU's memory that may be in use for Triton to load a model.",
        shown_default="unset",
    )
    triton_additional_args: str | None = setting(
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS",
        words,
        "",
        "Further arguments of tritonserver, quoted as for a shell.",
        shown_default="unset",
    )
    # Pierhead's own
    base_dir: Path = setting(
        "SAGEMAKER_BASE_DIR", folder, "/opt/ml", "The folder that holds `model/` and `models/`."
    )
    run_dir: Path | None = setting(
        "PIERHEAD_RUN_DIR",
        folder,
        "",
        "The folder for sockets and generated configuration.",
        shown_default="a fresh private folder",
    )
    metrics: str = setting(
        "PIERHEAD_METRICS",
        choice(*METRICS_READERS),
        "loopback",
        "Who may read [/metrics](metrics.md): `loopback`, the container itself; `all`; `off`, nobody.",
    )
    timeout_seconds: int | None = setting(
        "PIERHEAD_TIMEOUT_SECONDS",
        integer(1, LONGEST_SECONDS),
        "",
        "The longest time for one request; raises every other limit that is below it.",
        shown_default="unset",
    )

    @property
    def model_dir(self) -> Path:
        """Where SageMaker unpacks a single model."""
        return self.base_dir / "model"

    @property
    def models_dir(self) -> Path:
        """Where SageMaker unpacks the models of a multi-model endpoint, each in a folder of its own."""
        return self.base_dir / "models"

    @property
    def version_labels(self) -> VersionLabels:
        """The labels of versions, none when not set."""
        return self.version_labels_set or VersionLabels()

    @property
    def gunicorn_timeout_seconds(self) -> int:
        """The handler workers' timeout, raised by PIERHEAD_TIMEOUT_SECONDS."""
        return max(self.gunicorn_timeout_seconds_set, self.timeout_seconds or 0)

    @property
    def proxy_read_timeout_seconds(self) -> int:
        """Nginx's wait for what is behind it, never below the handler workers' timeout."""
        return max(self.nginx_proxy_read_timeout_set, self.gunicorn_timeout_seconds)

    @property
    def request_limit(self) -> str:
        """The setting that `proxy_read_timeout_seconds` comes from."""
        names = {
            self.nginx_proxy_read_timeout_set: "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS",
            self.gunicorn_timeout_seconds_set: "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS",
            self.timeout_seconds: "PIERHEAD_TIMEOUT_SECONDS",
        }
        return names[self.proxy_read_timeout_seconds]

    @property
    def work_timeout_seconds(self) -> int:
        """The limit of the work behind nginx: a little longer, so that it is nginx that answers."""
        return self.proxy_read_timeout_seconds + WORK_GRACE_SECONDS

    @property
    def gunicorn_loglevel(self) -> str:
        """The handler workers' log level."""
        return self.gunicorn_loglevel_set or self.log_level

    @property
    def nginx_loglevel(self) -> str:
        """The level of nginx's error log: between info and error nginx tells of connections and buffers."""
        derived = {"debug": "info", "critical": "crit"}.get(self.log_level, "error")
        return self.nginx_loglevel_set or derived

    @property
    def has_access_log(self) -> bool:
        """Whether there is a line for each request: at the level info, nginx's own where it is set."""
        if self.nginx_loglevel_set:
            return self.nginx_loglevel_set in {"debug", "info", "notice"}
        return self.log_level in {"debug", "info"}

    @property
    def num_batch_threads(self) -> int:
        """Threads that run batches; as many as CPUs when not set."""
        return self.num_batch_threads_set or available_cpus()

    @property
    def max_enqueued_batches(self) -> int:
        """Batches that wait; without a practical limit in a transform job, which sends all at once."""
        return self.max_enqueued_batches_set or (UNBOUNDED_QUEUE if self.batch else available_cpus())

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings that `environ` gives; raise one ConfigError with all problems found.

        A variable that is set to the empty text counts as not set.
        """
        values: dict[str, Any] = {}
        problems: list[str] = []
        arguments = _settings_of_gunicorn(environ)
        for name, row in _rows():
            text = arguments.get(row.variable) or environ.get(row.variable) or row.default
            try:
                values[name] = row.parse(text) if text else None
            except ValueError as problem:
                source = " of GUNICORN_CMD_ARGS" if row.variable in arguments else ""
                problems.append(f"{row.variable}={text!r}{source}: {problem}")
        if problems:
            raise ConfigError(problems)
        settings = cls(**values)
        _refuse_contradictions(settings)
        return settings

    def to_env(self) -> dict[str, str]:
        """Return the variables from which `from_env` makes these settings again."""
        values = ((row.variable, getattr(self, name)) for name, row in _rows())
        return {variable: _text(value) for variable, value in values if value is not None}


def settings_table() -> str:
    """Return the manual's table of settings, in Markdown."""
    lines = ["| variable | meaning | default |", "| --- | --- | --- |"]
    for row in TABLE:
        lines.append(f"| `{row.variable}` | {row.sentence} | {row.shown_default} |")
    return "\n".join(lines) + "\n"


def unknown_names(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each variable that looks like a setting and is none."""
    known = [row.variable for row in TABLE]
    for name in sorted(environ):
        if name.startswith(OWNED_PREFIXES) and name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            yield f"{name} is not a setting and has no effect{hint}"


def log_settings(environ: Mapping[str, str]) -> LogSettings:
    """Return the settings of the log alone, for a program without use for others; may raise ConfigError."""
    settings = Settings.from_env({name: environ.get(name, "") for name in LOG_VARIABLES})
    return LogSettings(settings.log_level, settings.log_format, inherited_log(environ))


def inherited_log(environ: Mapping[str, str]) -> int:
    """Return the descriptor of the log that the supervisor hands down; else that of standard error."""
    text = environ.get(LOG_DESCRIPTOR, "")
    with contextlib.suppress(OSError, ValueError):
        os.fstat(int(text))
        return int(text)
    return STANDARD_ERROR


def available_cpus() -> int:
    """Return how many CPUs this process may use, by its affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rows() -> Iterator[tuple[str, Setting]]:
    for each in fields(Settings):
        yield each.name, each.metadata["setting"]


def _settings_of_gunicorn(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings in GUNICORN_CMD_ARGS; none where it cannot be read, which its row reports."""
    try:
        return read_gunicorn_arguments(environ.get("GUNICORN_CMD_ARGS", "")).settings
    except ValueError:
        return {}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_contradictions(settings: Settings) -> None:
    problems = []
    ports = settings.safe_port_range
    if ports is not None:
        needed = 2 * settings.instance_count
        if ports.high - ports.low + 1 < needed and not settings.multi_model:
            problems.append(
                f"SAGEMAKER_SAFE_PORT_RANGE='{ports}': must hold {needed} ports, two for each of "
                f"SAGEMAKER_TFS_INSTANCE_COUNT={settings.instance_count} model servers"
            )
    if (settings.universal_bucket is None) != (settings.universal_prefix is None):
        problems.append(
            "SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET and SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX: "
            "must be set together, or neither"
        )
    if problems:
        raise ConfigError(problems)


TABLE: tuple[Setting, ...] = tuple(row for _, row in _rows())
