"""The supervisor's program, from its settings to its end.

Takes its settings from the environment, finds the models, plans the processes, and runs them until a signal
or a failure. A start that cannot succeed ends within seconds: one message, exit status 1.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import queue
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial

from pierhead.contract.artifact import CODE_DIRECTORY, Artifact, find_artifact
from pierhead.control import write_plan
from pierhead.errors import ConfigError, PierheadError, StartError
from pierhead.logs import LogWriter, configure_logging
from pierhead.settings import (
    LOG_DESCRIPTOR,
    STANDARD_ERROR,
    TABLE,
    LogSettings,
    Settings,
    log_settings,
    unknown_names,
)
from pierhead.supervisor.access_log import access_log_file, copied_log
from pierhead.supervisor.binaries import SERVING_BINARY, find_model_server, find_nginx
from pierhead.supervisor.doors import ControlDoor, Door, HealthDoor, MetricsDoor
from pierhead.supervisor.events import ChildrenChanged, Event, SignalReceived
from pierhead.supervisor.group import Surroundings
from pierhead.supervisor.memory_use import memory_use
from pierhead.supervisor.metrics.models import ModelMetrics
from pierhead.supervisor.metrics.page import MetricsPage, Part
from pierhead.supervisor.metrics.processes import ProcessMetrics
from pierhead.supervisor.metrics.requests import RequestLog
from pierhead.supervisor.metrics.servers import MONITORING_CONFIG, ServerMetrics
from pierhead.supervisor.metrics.workers import WorkerMetrics, is_running
from pierhead.supervisor.models.door import ModelsDoor
from pierhead.supervisor.models.preparation import Preparer
from pierhead.supervisor.models.publication import Publication
from pierhead.supervisor.models.table import ModelTable
from pierhead.supervisor.named_pipe import NamedPipe
from pierhead.supervisor.nginx_config import find_template, render_nginx_config
from pierhead.supervisor.outputs import Outputs
from pierhead.supervisor.plan import (
    NGINX,
    Inputs,
    batching_config_text,
    choose_default_model,
    find_hooks,
    find_version_labels,
    has_universal_hooks,
    is_downloaded,
    model_config_text,
    process_specs,
    server_name,
    server_probes,
    service_plan,
)
from pierhead.supervisor.ports import PortPool, allocate_ports, is_free
from pierhead.supervisor.probes import Probe, answers_pings
from pierhead.supervisor.requirements import find_requirements, make_environment
from pierhead.supervisor.run_folder import RunFolder
from pierhead.supervisor.signals import hold_signals, stop_signals
from pierhead.supervisor.spawner import Spawner, become_subreaper
from pierhead.supervisor.stack import Stack

__all__ = ["main"]

OUTPUT_SECONDS = 1.0
SECONDS_BESIDE_LOAD = 50
log = logging.getLogger("pierhead.supervisor")


def main() -> int:
    """Run the stack; return its exit status."""
    _append_to_files()
    log_to = _configure_log()
    inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
    _queue_signals(inbox)
    try:
        settings = Settings.from_env(os.environ)
        _log_settings(settings, os.environ)
        inputs = _plan(settings)
    except PierheadError as problem:
        _log_refusal(problem)
        return 1
    try:
        return _run(inputs, inbox, Outputs(log_to))
    except PierheadError as problem:
        _log_refusal(problem)
        return 1
    finally:
        inputs.run.remove()


def _configure_log() -> LogWriter:
    """Return the log, in the form that is asked for; settings that cannot be read are reported in its own."""
    wanted = LogSettings("info", "text", STANDARD_ERROR)
    with contextlib.suppress(ConfigError):
        wanted = log_settings(os.environ)
    log_to = LogWriter(wanted.style, STANDARD_ERROR)
    configure_logging("supervisor", wanted.level, log_to)
    sys.excepthook = lambda *problem: log.critical("the supervisor failed", exc_info=problem)
    threading.excepthook = lambda failure: log.critical("a thread failed", exc_info=failure.exc_value)
    return log_to


def _append_to_files() -> None:
    """Write at the end of a file: nginx opens it anew, and its lines would be written over."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)


def _queue_signals(inbox: queue.SimpleQueue[Event]) -> None:
    """Have a thread of its own wait for signals.

    The kernel may hand a signal to any thread that takes it. A handler would then run only when the main
    thread wakes for another reason, and that one sleeps until something is in the inbox.
    """
    ends, awaited = stop_signals(), hold_signals()

    def listen() -> None:
        while True:
            number = signal.sigwait(awaited)
            inbox.put(SignalReceived(number) if number in ends else ChildrenChanged())

    threading.Thread(target=listen, daemon=True).start()


def _log_settings(settings: Settings, environ: Mapping[str, str]) -> None:
    for warning in unknown_names(environ):
        log.warning("%s", warning)
    resolved = settings.to_env()
    for row in TABLE:
        if environ.get(row.variable):
            log.info("setting %s=%s", row.variable, resolved[row.variable])


def _log_refusal(problem: PierheadError) -> None:
    problems = problem.problems if isinstance(problem, ConfigError) else (str(problem),)
    for each in problems:
        log.error("cannot start: %s", each)


def _plan(settings: Settings) -> Inputs:
    """Return all that the processes follow from; raise PierheadError where the stack cannot be started."""
    artifact = _find_artifact(settings)
    model_server = find_model_server(settings) if artifact.models or settings.multi_model else None
    nginx = find_nginx()
    if not is_free(settings.bind_to_port):
        raise StartError(f"port {settings.bind_to_port} is in use (SAGEMAKER_BIND_TO_PORT)")
    servers = allocate_ports(
        settings.instance_count if artifact.models else 0,
        settings.safe_port_range,
        lambda port: port != settings.bind_to_port and is_free(port),
    )
    requirements = find_requirements(artifact.code)
    run = RunFolder.make(settings.run_dir)
    has_environment = requirements.file is not None or is_downloaded(settings)
    python = make_environment(run.environment) if has_environment else sys.executable
    needs_nursery = (bool(servers) or settings.multi_model) and model_server is None
    return Inputs(
        settings=settings,
        artifact=artifact,
        run=run,
        servers=servers,
        nginx=nginx,
        model_server=model_server,
        use_nursery=needs_nursery and become_subreaper(),
        requirements=requirements,
        workers_python=str(python),
    )


def _find_artifact(settings: Settings) -> Artifact:
    """Return the artifact to serve; a multi-model endpoint begins with the hooks that its models share."""
    if settings.multi_model:
        code = settings.base_dir / CODE_DIRECTORY
        return Artifact(settings.base_dir, (), code if code.is_dir() else None)
    artifact = find_artifact(settings.model_dir, settings.program)
    choose_default_model(settings, artifact)
    find_version_labels(settings, artifact)
    return artifact


def _write_files(inputs: Inputs) -> None:
    run, settings = inputs.run, inputs.settings
    if settings.multi_model:
        run.make_model_folders()
    else:
        labels = find_version_labels(settings, inputs.artifact)
        run.model_config.write_text(model_config_text(inputs.artifact, labels))
    if settings.metrics != "off":
        run.monitoring_config.write_text(MONITORING_CONFIG)
    if settings.enable_batching:
        run.batching_config.write_text(batching_config_text(settings))
    write_plan(service_plan(inputs), run.workers_plan)
    run.nginx_config.write_text(
        render_nginx_config(
            find_template(),
            settings,
            run=run,
            servers=inputs.servers,
            default_model="" if settings.multi_model else choose_default_model(settings, inputs.artifact),
            has_hooks=find_hooks(settings, inputs.artifact) is not None,
            is_embedded=inputs.model_server is None,
        )
    )


def _probes(inputs: Inputs) -> dict[str, Probe]:
    probes = server_probes(inputs.artifact, inputs.servers)
    return {**probes, NGINX: answers_pings(inputs.settings.bind_to_port)}


def _children_environ() -> dict[str, str]:
    """Return our environment, with the log as a descriptor of its own: standard error is not theirs."""
    log_descriptor = os.dup(STANDARD_ERROR)
    os.set_inheritable(log_descriptor, True)
    return {**os.environ, LOG_DESCRIPTOR: str(log_descriptor)}


def _metrics(inputs: Inputs, stack: Stack) -> Iterator[RequestLog | MetricsPage | MetricsDoor]:
    """Yield what has to be open for /metrics; nginx's pipe comes first, since nginx waits for its reader."""
    if inputs.settings.metrics == "off":
        return
    requests = RequestLog(inputs.run.request_pipe)
    yield requests
    processes = ProcessMetrics(stack, "embedded" if inputs.model_server is None else SERVING_BINARY)
    workers = WorkerMetrics(inputs.run.worker_metrics, is_running)
    servers = (
        ServerMetrics(name, address.rest_port, partial(getattr, stack.processes[name], "pid"))
        for name, address in ((server_name(i), address) for i, address in enumerate(inputs.servers))
    )
    models = () if stack.models is None else (ModelMetrics(stack.models),)
    parts: tuple[Part, ...] = (requests, workers, processes, *servers, *models)
    page = MetricsPage(parts, passing=models[0].servers) if models else MetricsPage(parts)
    yield page
    yield MetricsDoor(inputs.run.metrics_socket, page.encode)


def _access_log(inputs: Inputs) -> Iterator[NamedPipe]:
    """Yield the pipe that has to be open for nginx's access lines, where nginx writes them to one."""
    pipe = inputs.run.access_pipe
    if inputs.settings.has_access_log and access_log_file(pipe) == pipe:
        yield copied_log(pipe)


def _log_models(inputs: Inputs) -> None:
    if inputs.settings.multi_model:
        hooks = "shared" if has_universal_hooks(inputs) else "none shared"
        log.info("models are loaded on demand from %s hooks=%s", inputs.settings.models_dir, hooks)
        return
    default = choose_default_model(inputs.settings, inputs.artifact)
    for model in inputs.artifact.models:
        mark = " default" if model.name == default else ""
        log.info("model name=%s versions=%s%s", model.name, ",".join(map(str, model.versions)), mark)
    if not inputs.artifact.models:
        log.info("model name=%s loaded by %s, without model servers", default, inputs.settings.program)


def _model_table(
    inputs: Inputs,
    spawner: Spawner,
    inbox: queue.SimpleQueue[Event],
    outputs: Outputs,
    publication: Publication,
) -> ModelTable:
    settings = inputs.settings
    ports = PortPool(settings.safe_port_range, lambda port: port != settings.bind_to_port and is_free(port))
    return ModelTable(
        settings,
        Surroundings(spawner, inbox.put, time.monotonic),
        preparer=Preparer(inputs, publication, ports, memory_use),
        publication=publication,
        report=inbox.put,
        memory=memory_use,
        outputs=outputs,
    )


def _run(inputs: Inputs, inbox: queue.SimpleQueue[Event], outputs: Outputs) -> int:
    _write_files(inputs)
    _log_models(inputs)
    is_multi_model = inputs.settings.multi_model
    environ = _children_environ() | inputs.run.temporary_environment()
    spawner = Spawner(environ, inbox.put, outputs)
    publication = Publication(inputs.run)
    models = _model_table(inputs, spawner, inbox, outputs, publication) if is_multi_model else None
    stack = Stack(
        process_specs(inputs),
        spawner=spawner,
        inbox=inbox,
        probes=_probes(inputs),
        worker_count=inputs.settings.gunicorn_workers,
        clock=time.monotonic,
        models=models,
    )
    doors: list[Door | NamedPipe] = [
        ControlDoor(inputs.run.control_socket, inbox.put),
        HealthDoor(inputs.run.health_socket, stack.not_ready),
        *_access_log(inputs),
    ]
    if models is not None:
        socket, seconds = inputs.run.models_socket, inputs.settings.wait_time_seconds + SECONDS_BESIDE_LOAD
        doors.append(ModelsDoor(socket, models, publication, inbox.put, seconds))
    try:
        with contextlib.ExitStack() as opened:
            for door in (*doors, *_metrics(inputs, stack)):
                opened.callback(door.close)
                door.open()
            return stack.run()
    finally:
        spawner.close()
        outputs.close(OUTPUT_SECONDS)
        log.info("stopped")
