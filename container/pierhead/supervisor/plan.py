"""Decides, before anything is started, which processes the stack consists of and how each is run."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pierhead.contract.artifact import ROOT_MODEL_NAME, Artifact, Model
from pierhead.control import HANDLER_WORKERS, ModelPlan, ServerAddress, ServicePlan
from pierhead.errors import ConfigError
from pierhead.settings import Settings
from pierhead.supervisor.probes import Probe, serves_models
from pierhead.supervisor.process import ProcessSpec
from pierhead.supervisor.requirements import Requirements, pip_command
from pierhead.supervisor.run_folder import RunFolder
from pierhead.supervisor.spawner import NURSERY

__all__ = [
    "NGINX",
    "REQUIREMENTS",
    "TETHERED",
    "UNIVERSAL_CODE",
    "WORKERS",
    "Inputs",
    "ServerFiles",
    "batching_config_text",
    "choose_default_model",
    "find_hooks",
    "find_version_labels",
    "has_universal_hooks",
    "is_downloaded",
    "model_config_text",
    "model_server_spec",
    "process_specs",
    "requirements_spec",
    "server_name",
    "server_probes",
    "service_plan",
    "workers_spec",
]

NGINX = "nginx"
REQUIREMENTS = "requirements"
UNIVERSAL_CODE = "universal-code"
WORKERS = HANDLER_WORKERS
WAIT_LIMIT = "SAGEMAKER_TFS_WAIT_TIME_SECONDS"
REQUIREMENTS_SECONDS = 1800.0
MODEL_SERVER_MODULE = "pierhead.modelserver"
TETHERED = (sys.executable, "-m", "pierhead.tether")


@dataclass(frozen=True)
class ServerFiles:
    """The files of one model server: its models' configuration and, of a `loaded_model`, a socket.

    Through the socket the embedded server takes invocations, which are for that model where they do not say
    otherwise.
    """

    model_config: Path
    loaded_model: str | None = None
    socket: Path | None = None


@dataclass(frozen=True)
class Inputs:
    """All that the plan follows from. `model_server` is a binary's path, None for the embedded server."""

    settings: Settings
    artifact: Artifact
    run: RunFolder
    servers: tuple[ServerAddress, ...]
    nginx: str
    model_server: str | None
    use_nursery: bool
    requirements: Requirements
    workers_python: str


def choose_default_model(settings: Settings, artifact: Artifact) -> str:
    """Return the name of the model that serves requests which name none.

    The setting, else the only model, else the first by name. Raises ConfigError where the setting names none
    of the artifact's. A model that the hooks load by themselves has whatever name is set.
    """
    names = [model.name for model in artifact.models]
    wanted = settings.default_model_name
    if not names:
        return wanted or ROOT_MODEL_NAME
    if wanted is not None and wanted not in names:
        raise ConfigError(
            [f"SAGEMAKER_TFS_DEFAULT_MODEL_NAME={wanted!r}: must be one of the artifact's models, {names}"]
        )
    return wanted or names[0]


def find_version_labels(settings: Settings, artifact: Artifact) -> dict[str, dict[str, int]]:
    """Return the versions by label of each model.

    Raises ConfigError where PIERHEAD_VERSION_LABELS names a model or a version that the artifact has not.
    """
    default = choose_default_model(settings, artifact)
    known = {model.name: model.versions for model in artifact.models}
    problems = []
    for entry in settings.version_labels.entries:
        versions = known.get(entry.model or default)
        if versions is None:
            problems.append(f"'{entry}': {entry.model!r} is none of the artifact's models, {list(known)}")
        elif entry.version not in versions:
            problems.append(f"'{entry}': the model's versions are {list(versions)}")
    if problems:
        raise ConfigError([f"PIERHEAD_VERSION_LABELS: {problem}" for problem in problems])
    return {name: settings.version_labels.of_model(name, default) for name in known}


def is_downloaded(settings: Settings) -> bool:
    """Return whether the universal script of a multi-model endpoint comes from S3."""
    return settings.multi_model and settings.universal_bucket is not None


def has_universal_hooks(inputs: Inputs) -> bool:
    """Return whether models of a multi-model endpoint that bring no hooks share some."""
    return _service_code(inputs)[1] is not None


def find_hooks(settings: Settings, artifact: Artifact) -> Path | None:
    """Return the file with the user's hooks, where the artifact has one."""
    hooks = artifact.code / settings.program if artifact.code is not None else None
    return hooks if hooks is not None and hooks.is_file() else None


def service_plan(inputs: Inputs) -> ServicePlan:
    """Return what the handler workers are told; those of a multi-model endpoint begin with no model."""
    code, hooks = _service_code(inputs)
    run, is_multi_model = inputs.run, inputs.settings.multi_model
    default = "" if is_multi_model else choose_default_model(inputs.settings, inputs.artifact)
    models = tuple(ModelPlan(model.name, model.versions) for model in inputs.artifact.models)
    return ServicePlan(
        settings=inputs.settings.to_env(),
        socket=str(run.workers_socket),
        control_socket=str(run.control_socket),
        servers=inputs.servers,
        models=models if models or is_multi_model else (ModelPlan(default, ()),),
        default_model=default,
        code=str(code) if hooks is not None else None,
        hooks=str(hooks) if hooks is not None else None,
        loaded=str(run.loaded) if is_multi_model else None,
    )


def _service_code(inputs: Inputs) -> tuple[Path | None, Path | None]:
    """Return the code folder and the hooks in it; what is yet to be downloaded is taken to be there."""
    if is_downloaded(inputs.settings):
        folder = inputs.run.universal_code
        return folder, folder / inputs.settings.program
    return inputs.artifact.code, find_hooks(inputs.settings, inputs.artifact)


def process_specs(inputs: Inputs) -> tuple[ProcessSpec, ...]:
    """Return the processes in the order of their start; they are stopped in the reverse order."""
    return tuple(_specs(inputs))


def _specs(inputs: Inputs) -> Iterator[ProcessSpec]:
    settings = inputs.settings
    seconds = float(settings.wait_time_seconds)
    yield from _hook_specs(inputs)
    if inputs.use_nursery:
        command = (sys.executable, "-m", MODEL_SERVER_MODULE)
        yield ProcessSpec(
            NURSERY, command, environment=_model_server_environment(inputs), start_seconds=seconds
        )
    limit = f"{WAIT_LIMIT}; its models: {', '.join(model.name for model in inputs.artifact.models)}"
    for number, address in enumerate(inputs.servers):
        files = ServerFiles(inputs.run.model_config)
        yield model_server_spec(inputs, server_name(number), address, files, limit)
    yield workers_spec(inputs, WORKERS, inputs.workers_python, inputs.run.workers_plan)
    yield ProcessSpec(
        NGINX,
        (
            *TETHERED,
            inputs.nginx,
            "-p",
            f"{inputs.run.nginx}/",
            "-c",
            str(inputs.run.nginx_config),
            "-e",
            "stderr",
        ),
        environment={"TZ": "UTC"},
        stage=2,
        stop_signal=signal.SIGQUIT,
        keeps_stdout=True,
        start_seconds=seconds,
    )


def _hook_specs(inputs: Inputs) -> Iterator[ProcessSpec]:
    """Yield what has to run once before hooks can be imported."""
    settings, python, file = inputs.settings, inputs.workers_python, inputs.requirements.file
    if is_downloaded(settings):
        folder = inputs.run.universal_code
        yield ProcessSpec(
            UNIVERSAL_CODE,
            (
                *(sys.executable, "-m", "pierhead.universal_code"),
                *(str(settings.universal_bucket), str(settings.universal_prefix), str(folder), "--"),
                *pip_command(Path(python), folder / "requirements.txt"),
            ),
            environment={"SAGEMAKER_PROGRAM": settings.program},
            once=True,
            start_seconds=REQUIREMENTS_SECONDS,
            limit="the limit of the universal script",
        )
    elif file is not None:
        yield requirements_spec(REQUIREMENTS, python, file)


def requirements_spec(name: str, python: str, file: Path) -> ProcessSpec:
    """Return the process that installs a requirements file, once."""
    return ProcessSpec(
        name,
        pip_command(Path(python), file),
        once=True,
        start_seconds=REQUIREMENTS_SECONDS,
        limit="the limit of requirements.txt",
    )


def workers_spec(inputs: Inputs, name: str, python: str, plan: Path) -> ProcessSpec:
    """Return the master of handler workers of a plan."""
    return ProcessSpec(
        name,
        (python, "-m", "pierhead.service", str(plan)),
        environment={"PYTHONUNBUFFERED": "1", **_worker_metrics(inputs)},
        stage=1,
        start_seconds=float(inputs.settings.wait_time_seconds),
    )


def _worker_metrics(inputs: Inputs) -> dict[str, str]:
    """Return what prometheus_client reads when it is imported."""
    if inputs.settings.metrics == "off":
        return {}
    return {"PROMETHEUS_MULTIPROC_DIR": str(inputs.run.worker_metrics)}


def server_probes(
    artifact: Artifact, addresses: Sequence[ServerAddress], prefix: str = ""
) -> dict[str, Probe]:
    """Return what asks each model server, by its process's name, whether it serves all of the models."""
    models = tuple(model.name for model in artifact.models)
    return {
        f"{prefix}{server_name(number)}": serves_models(address.rest_port, models)
        for number, address in enumerate(addresses)
    }


def server_name(number: int) -> str:
    """Return the name of a model server's process; the first is number 0."""
    return f"model-server-{number + 1}"


def model_server_spec(
    inputs: Inputs, name: str, address: ServerAddress, files: ServerFiles, limit: str = WAIT_LIMIT
) -> ProcessSpec:
    """Return one model server; `limit` is what a message about its readiness names."""
    return ProcessSpec(
        name,
        (*_model_server_program(inputs), *_model_server_flags(inputs, name, address, files)),
        environment=_model_server_environment(inputs),
        needs=(NURSERY,) if inputs.use_nursery else (),
        forked=inputs.use_nursery,
        start_seconds=float(inputs.settings.wait_time_seconds),
        limit=limit,
    )


def _model_server_program(inputs: Inputs) -> tuple[str, ...]:
    """Return what comes before the flags; nothing where the nursery forks."""
    if inputs.use_nursery:
        return ()
    if inputs.model_server is not None:
        return (*TETHERED, inputs.model_server)
    return (sys.executable, "-m", MODEL_SERVER_MODULE)


def _model_server_environment(inputs: Inputs) -> dict[str, str]:
    """Return the environment of model servers; a thread of OpenBLAS would forbid to fork."""
    settings = inputs.settings
    return {
        "TF_CPP_MIN_LOG_LEVEL": str(_tensorflow_loglevel(settings, is_embedded=inputs.model_server is None)),
        "OMP_NUM_THREADS": str(settings.omp_num_threads),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _tensorflow_loglevel(settings: Settings, *, is_embedded: bool) -> int:
    """Return what TensorFlow leaves out. The embedded server tells of its models without it."""
    if settings.tensorflow_loglevel_set is not None:
        return settings.tensorflow_loglevel_set
    lowest = {"debug": 0, "info": 0, "warning": 1, "error": 2, "critical": 3}[settings.log_level]
    return max(lowest, 2) if is_embedded and settings.log_level != "debug" else lowest


def _model_server_flags(
    inputs: Inputs, name: str, address: ServerAddress, files: ServerFiles
) -> Iterator[str]:
    settings = inputs.settings
    yield f"--port={address.grpc_port}"
    yield f"--rest_api_port={address.rest_port}"
    yield f"--model_config_file={files.model_config}"
    yield "--max_num_load_retries=0"
    yield f"--rest_api_timeout_in_ms={1000 * settings.work_timeout_seconds}"
    yield "--enable_serialization_as_tensor_content=true"
    if settings.metrics != "off":
        yield f"--monitoring_config_file={inputs.run.monitoring_config}"
    if settings.version_labels.entries:
        # They are read before the versions that they name are loaded.
        yield "--allow_version_labels_for_unavailable_models=true"
    if settings.intra_op_parallelism:
        yield f"--tensorflow_intra_op_parallelism={settings.intra_op_parallelism}"
    if settings.inter_op_parallelism:
        yield f"--tensorflow_inter_op_parallelism={settings.inter_op_parallelism}"
    if settings.enable_batching:
        yield "--enable_batching=true"
        yield f"--batching_parameters_file={inputs.run.batching_config}"
    if inputs.model_server is None:
        yield "--bind_address=127.0.0.1"
        # The profiler's own server listens at all addresses.
        yield "--enable_profiler=false"
        if files.loaded_model is not None:
            yield f"--process_name={name}"
            yield f"--supervisor_socket={inputs.run.control_socket}"
        if files.socket is not None:
            yield f"--rest_api_socket_path={files.socket}"
            yield f"--invocations_model={files.loaded_model}"


def model_config_text(artifact: Artifact, labels: Mapping[str, Mapping[str, int]]) -> str:
    """Return the model server's configuration, a text proto of ModelServerConfig.

    All versions of all models are served; `labels` are those of each model. Source: TensorFlow Serving's
    contract, section 3.1.
    """
    entries = (_model_entry(model, labels.get(model.name, {})) for model in artifact.models)
    return "model_config_list {\n" + "".join(entries) + "}\n"


def _model_entry(model: Model, labels: Mapping[str, int]) -> str:
    named = (
        f"    version_labels {{ key: {_proto_text(label)} value: {version} }}\n"
        for label, version in labels.items()
    )
    versions = " ".join(f"versions: {version}" for version in model.versions)
    return (
        "  config {\n"
        f"    name: {_proto_text(model.name)}\n"
        f"    base_path: {_proto_text(str(model.base_path.resolve()))}\n"
        "    model_platform: 'tensorflow'\n"
        f"    model_version_policy {{ specific {{ {versions} }} }}\n"
        f"{''.join(named)}"
        "  }\n"
    )


def _proto_text(text: str) -> str:
    """Return a text as a string of the text format; all but plain characters are escaped as octal bytes."""
    return "'" + re.sub(rb"[^ -&(-\[\]-~]", lambda m: b"\\%03o" % m[0][0], text.encode()).decode() + "'"


def batching_config_text(settings: Settings) -> str:
    """Return the model server's batching, a text proto of BatchingParameters."""
    values = {
        "max_batch_size": settings.max_batch_size,
        "batch_timeout_micros": settings.batch_timeout_micros,
        "max_enqueued_batches": settings.max_enqueued_batches,
        "num_batch_threads": settings.num_batch_threads,
    }
    return "".join(f"{name} {{ value: {value} }}\n" for name, value in values.items())
