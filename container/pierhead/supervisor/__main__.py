"""The supervisor's entry point: `python -m pierhead.supervisor`, which is what `serve` runs.

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
from collections.abc import Mapping

from pierhead.contract.artifact import find_artifact
from pierhead.control import write_plan
from pierhead.errors import ConfigError, PierheadError, StartError
from pierhead.logs import configure_logging
from pierhead.settings import TABLE, Settings, unknown_names
from pierhead.supervisor.binaries import find_model_server, find_nginx
from pierhead.supervisor.doors import ControlDoor, HealthDoor
from pierhead.supervisor.events import ChildrenChanged, Event, SignalReceived
from pierhead.supervisor.nginx_config import find_template, render_nginx_config
from pierhead.supervisor.plan import (
    NGINX,
    Inputs,
    batching_config_text,
    choose_default_model,
    find_hooks,
    model_config_text,
    process_specs,
    server_name,
    service_plan,
)
from pierhead.supervisor.ports import allocate_ports, is_free
from pierhead.supervisor.probes import Probe, answers_pings, serves_models
from pierhead.supervisor.requirements import find_requirements, make_environment
from pierhead.supervisor.run_folder import RunFolder
from pierhead.supervisor.spawner import Spawner, become_subreaper
from pierhead.supervisor.stack import Stack

__all__ = ["main"]

log = logging.getLogger("pierhead.supervisor")


def main() -> int:
    """Run the stack; return its exit status."""
    _append_to_files()
    configure_logging("supervisor")
    inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
    _queue_signals(inbox)
    try:
        settings = Settings.from_env(os.environ)
        configure_logging("supervisor", settings.log_level)
        _log_settings(settings, os.environ)
        inputs = _plan(settings)
    except PierheadError as problem:
        _log_refusal(problem)
        return 1
    try:
        return _run(inputs, inbox)
    except PierheadError as problem:
        _log_refusal(problem)
        return 1
    finally:
        inputs.run.remove()


def _append_to_files() -> None:
    """Write at the end of a file: nginx opens it anew, and its lines would be written over."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)


def _queue_signals(inbox: queue.SimpleQueue[Event]) -> None:
    """Have a thread of its own wait for signals; every other thread, made later, inherits the block.

    The kernel may hand a signal to any thread that takes it. A handler would then run only when the main
    thread wakes for another reason, and that one sleeps until something is in the inbox.
    """
    ends = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}
    # What was ignored before us stays so: nohup asks for that.
    ends -= {number for number in ends if signal.getsignal(number) is signal.SIG_IGN}
    awaited = {*ends, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)

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
    if settings.multi_model:
        raise StartError("SAGEMAKER_MULTI_MODEL=true: multi-model endpoints are not served by this version")
    artifact = find_artifact(settings.model_dir)
    choose_default_model(settings, artifact)
    model_server = find_model_server(settings)
    nginx = find_nginx()
    if not is_free(settings.bind_to_port):
        raise StartError(f"port {settings.bind_to_port} is in use (SAGEMAKER_BIND_TO_PORT)")
    servers = allocate_ports(
        settings.instance_count,
        settings.safe_port_range,
        lambda port: port != settings.bind_to_port and is_free(port),
    )
    requirements = find_requirements(artifact.code)
    run = RunFolder.make(settings.run_dir)
    python = make_environment(run.environment) if requirements.file is not None else sys.executable
    return Inputs(
        settings=settings,
        artifact=artifact,
        run=run,
        servers=servers,
        nginx=nginx,
        model_server=model_server,
        use_nursery=model_server is None and become_subreaper(),
        requirements=requirements,
        workers_python=str(python),
    )


def _write_files(inputs: Inputs) -> None:
    run, settings = inputs.run, inputs.settings
    run.model_config.write_text(model_config_text(inputs.artifact))
    if settings.enable_batching:
        run.batching_config.write_text(batching_config_text(settings))
    write_plan(service_plan(inputs), run.workers_plan)
    run.nginx_config.write_text(
        render_nginx_config(
            find_template(),
            settings,
            run=run,
            servers=inputs.servers,
            default_model=choose_default_model(settings, inputs.artifact),
            has_hooks=find_hooks(settings, inputs.artifact) is not None,
            is_embedded=inputs.model_server is None,
        )
    )


def _probes(inputs: Inputs) -> dict[str, Probe]:
    models = tuple(model.name for model in inputs.artifact.models)
    probes = {
        server_name(number): serves_models(address.rest_port, models)
        for number, address in enumerate(inputs.servers)
    }
    return {**probes, NGINX: answers_pings(inputs.settings.bind_to_port)}


def _log_models(inputs: Inputs) -> None:
    default = choose_default_model(inputs.settings, inputs.artifact)
    for model in inputs.artifact.models:
        mark = " default" if model.name == default else ""
        log.info("model name=%s versions=%s%s", model.name, ",".join(map(str, model.versions)), mark)


def _run(inputs: Inputs, inbox: queue.SimpleQueue[Event]) -> int:
    _write_files(inputs)
    _log_models(inputs)
    spawner = Spawner(os.environ, inbox.put)
    stack = Stack(
        process_specs(inputs),
        spawner=spawner,
        inbox=inbox,
        probes=_probes(inputs),
        worker_count=inputs.settings.gunicorn_workers,
        clock=time.monotonic,
    )
    doors = (
        ControlDoor(inputs.run.control_socket, inbox.put),
        HealthDoor(inputs.run.health_socket, stack.not_ready),
    )
    for door in doors:
        door.open()
    try:
        return stack.run()
    finally:
        for door in doors:
            door.close()
        spawner.close()
        log.info("stopped")


if __name__ == "__main__":
    sys.exit(main())
