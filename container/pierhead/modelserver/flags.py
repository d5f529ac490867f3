"""The command line of `tensorflow_model_server`, as one table.

Each flag is declared once, as a field of `ServerFlags`: name, type, default and a sentence. Parsing, `--help`
and what is said about flags without effect derive from it. Source: TensorFlow Serving's contract, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from pierhead.errors import ConfigError
from pierhead.settings import available_cpus

__all__ = ["Flag", "FlagValue", "ParsedFlags", "ServerFlags", "flag_table", "parse_flags", "usage"]

FlagValue = bool | int | float | str
INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
CPUS = available_cpus()
NO_TFLITE = "TFLite's interpreter is not part of this server"
NO_XLA = "graphs run as they are"
ASSIGNMENT = re.compile(r"--(?P<name>[A-Za-z0-9_]+)(?:=(?P<text>.*))?", re.DOTALL)


def _flag(
    default: FlagValue, sentence: str, *, bits: int = 32, idle_because: str = "", shown: str | None = None
) -> Any:
    text = _shown(default) if shown is None else shown
    row = {"sentence": sentence, "bits": bits, "idle_because": idle_because, "shown_default": text}
    return field(default=default, metadata=row)


def _idle(default: FlagValue, sentence: str, *, because: str, shown: str | None = None) -> Any:
    return _flag(default, sentence, idle_because=because, shown=shown)


def _own(default: FlagValue, sentence: str) -> Any:
    return _flag(default, f"{sentence} (Pierhead's own flag)")


def _shown(value: FlagValue) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


@dataclass(frozen=True)
class ServerFlags:
    """The values of all flags; the defaults are those of `tensorflow_model_server`."""

    port: int = _flag(8500, "TCP port of the gRPC API; 0 is off, and then grpc_socket_path is required")
    grpc_socket_path: str = _flag("", "also listen for gRPC on this unix socket")
    rest_api_port: int = _flag(0, "TCP port of the REST API; 0 is off")
    rest_api_num_threads: int = _flag(4 * CPUS, "threads that run models for REST requests", shown="4 x CPUs")
    rest_api_timeout_in_ms: int = _flag(30000, "longest run for a REST request, ms; 0 or less: no limit")
    rest_api_enable_cors_support: bool = _flag(False, "send CORS headers with REST answers")
    enable_batching: bool = _flag(False, "join requests into batches")
    batching_parameters_file: str = _flag("", "text proto BatchingParameters; needs enable_batching")
    enable_per_model_batching_parameters: bool = _flag(False, "read batching_params.pbtxt of each version")
    allow_version_labels_for_unavailable_models: bool = _flag(False, "new labels may name unloaded versions")
    model_config_file: str = _flag("", "text proto ModelServerConfig; model_name and base path are ignored")
    model_config_file_poll_wait_seconds: int = _flag(0, "period of re-reading the config file; 0 is never")
    model_name: str = _flag("default", "name of the only model, without a config file")
    model_base_path: str = _flag("", "absolute base path of the only model, without a config file")
    num_load_threads: int = _flag(0, "threads that load versions after the start")
    num_unload_threads: int = _flag(0, "threads that unload versions")
    max_num_load_retries: int = _flag(5, "further attempts to load a version; 0 is one attempt")
    load_retry_interval_micros: int = _flag(60_000_000, "pause between attempts, microseconds", bits=64)
    file_system_poll_wait_seconds: int = _flag(1, "period of looking for new versions; 0 is once")
    flush_filesystem_caches: bool = _idle(
        True,
        "give up file system caches after loading",
        because="nothing of a model's files is cached once it is loaded",
    )
    tensorflow_session_parallelism: int = _flag(0, "threads within and between operations", bits=64)
    tensorflow_intra_op_parallelism: int = _flag(0, "threads within an operation; 0 is automatic", bits=64)
    tensorflow_inter_op_parallelism: int = _flag(0, "threads between operations; 0 is automatic", bits=64)
    tensorflow_session_config_file: str = _flag("", "text proto ConfigProto; other flags win over it")
    use_alts_credentials: bool = _flag(False, "Google ALTS for gRPC")
    ssl_config_file: str = _flag("", "text proto SSLConfig for gRPC; REST is always plain")
    platform_config_file: str = _flag("", "text proto PlatformConfigMap: sessions as it says, not the flags")
    per_process_gpu_memory_fraction: float = _flag(0.0, "share of a GPU's memory; 0 is as needed")
    saved_model_tags: str = _flag("serve", "tags of the graph to load, separated by commas")
    grpc_channel_arguments: str = _flag("", "k=v,k=v: arguments of the gRPC server")
    grpc_max_threads: int = _flag(4 * CPUS, "threads that serve gRPC requests", shown="4 x CPUs")
    enable_model_warmup: bool = _flag(True, "replay assets.extra/tf_serving_warmup_requests when loading")
    num_request_iterations_for_warmup: int = _flag(0, "replays of each warm-up request; 0 is one")
    version: bool = _flag(False, "print the versions and exit")
    monitoring_config_file: str = _flag("", "text proto MonitoringConfig")
    remove_unused_fields_from_bundle_metagraph: bool = _idle(
        True, "drop what serving does not need", because="none of them is kept in any case"
    )
    prefer_tflite_model: bool = _idle(False, "serve model.tflite where a version has one", because=NO_TFLITE)
    num_tflite_pools: int = _idle(CPUS, "pools of TFLite interpreters", shown="CPUs", because=NO_TFLITE)
    num_tflite_interpreters_per_pool: int = _idle(1, "TFLite interpreters in a pool", because=NO_TFLITE)
    enable_signature_method_name_check: bool = _flag(False, "a method runs only signatures made for it")
    xla_cpu_compilation_enabled: bool = _idle(False, "compile for the CPU with XLA", because=NO_XLA)
    xla_gpu_compilation_enabled: bool = _idle(False, "compile for the GPU with XLA", because=NO_XLA)
    enable_profiler: bool = _flag(True, "the profiler's gRPC service; its first call opens a further port")
    thread_pool_factory_config_file: str = _idle(
        "", "text proto ThreadPoolConfig", because="it names classes that are compiled into a server"
    )
    mixed_precision: str = _flag("", "bfloat16: matrices in half the bytes where the CPU can; or empty")
    skip_initialize_tpu: bool = _idle(False, "leave TPUs alone", because="TPUs are left alone in any case")
    enable_grpc_healthcheck_service: bool = _flag(False, "serve grpc.health.v1.Health")
    enable_serialization_as_tensor_content: bool = _flag(False, "predict answers in tensor_content")
    bind_address: str = _own("", "address of both ports; empty is all")
    rest_api_socket_path: str = _own(
        "", "also, or without rest_api_port alone, listen for REST on this unix socket"
    )
    invocations_model: str = _own("", "the model of POST /invocations without custom attributes")
    supervisor_socket: str = _own("", "control socket that is told why a start fails")
    process_name: str = _own("", "name in the log and at the supervisor")


@dataclass(frozen=True)
class Flag:
    """One row of the table; `bits` bounds an integer, `idle_because` says why a flag is only read."""

    name: str
    default: FlagValue
    sentence: str
    bits: int
    idle_because: str
    shown_default: str

    def parse(self, text: str | None) -> FlagValue:
        """Return the value of `--name=text`, or of a bare `--name`; raise ValueError with the rule."""
        if isinstance(self.default, bool):
            return _parse_bool("true" if text is None else text)
        if text is None:
            raise ValueError(f"--{self.name} needs a value: --{self.name}=VALUE")
        if isinstance(self.default, int):
            return _parse_integer(text, self.bits)
        return float(text) if isinstance(self.default, float) else text


@dataclass(frozen=True)
class ParsedFlags:
    """A command line: the flags, which of them were given, and the arguments that are no flags."""

    flags: ServerFlags
    given: tuple[Flag, ...]
    unknown: tuple[str, ...]

    def without_effect(self) -> dict[str, str]:
        """Return the given flags that ask for what this server does not do, and why it does not."""
        return {
            flag.name: flag.idle_because
            for flag in self.given
            if flag.idle_because and getattr(self.flags, flag.name) != flag.default
        }


def flag_table() -> dict[str, Flag]:
    """Return every flag by name, in the order of the table."""
    return {
        row.name: Flag(row.name, cast(FlagValue, row.default), **row.metadata) for row in fields(ServerFlags)
    }


def parse_flags(arguments: Sequence[str]) -> ParsedFlags:
    """Return the flags of a command line without the program's name.

    Arguments of another form than `--known[=text]` are collected, never fatal. Raises ConfigError naming
    every flag whose text does not suit.
    """
    table = flag_table()
    values: dict[str, Any] = {}
    unknown, problems = [], []
    for argument in arguments:
        match = ASSIGNMENT.fullmatch(argument)
        flag = table.get(match["name"]) if match else None
        if match is None or flag is None:
            unknown.append(argument)
            continue
        try:
            values[flag.name] = flag.parse(match["text"])
        except ValueError as problem:
            problems.append(f"{argument}: {problem}")
    if problems:
        raise ConfigError(problems)
    return ParsedFlags(ServerFlags(**values), tuple(table[name] for name in values), tuple(unknown))


def usage() -> str:
    """Return the text of --help."""
    lines = [
        f"\t--{flag.name}={flag.shown_default}\t{type(flag.default).__name__}\t{flag.sentence}"
        for flag in flag_table().values()
    ]
    return "\n".join(["usage: pierhead-model-server", "Flags:", *lines])


def _parse_bool(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _parse_integer(text: str, bits: int) -> int:
    limit = 1 << (bits - 1)
    if not INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
        raise ValueError(f"must be an integer of {bits} bits")
    return int(text)
