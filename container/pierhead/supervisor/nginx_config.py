"""Writes nginx's configuration from nginx.conf.template, the only place where nginx is configured."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import pwd
import resource
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2

from pierhead.contract import attributes
from pierhead.contract.headers import CUSTOM_ATTRIBUTES, INFERENCE_ID, TARGET_MODEL
from pierhead.contract.model_names import LONGEST_NAME, name_pattern
from pierhead.control import ServerAddress
from pierhead.errors import ConfigError
from pierhead.settings import Settings, available_cpus
from pierhead.supervisor.access_log import access_log_file
from pierhead.supervisor.execution_parameters import execution_parameters
from pierhead.supervisor.models.publication import LONGEST_DIRECT_NAME
from pierhead.supervisor.nginx_errors import nginx_errors
from pierhead.supervisor.run_folder import RunFolder

__all__ = ["find_template", "render_nginx_config"]

TEMPLATE_NAME = "nginx.conf.template"
UNPRIVILEGED_USER = "nobody"
MOST_OPEN_FILES = 16_384
MOST_CONNECTIONS = 4096
FILES_BESIDE_CONNECTIONS = 64
# The end of a model of that name may come first, and whoever answers for it bounds the wait before us.
SECONDS_BESIDE_LOAD = 60
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Held:
    """What nginx holds in memory of a request, so that a slow client does not hold what is behind nginx.

    `lengths` is a pattern of the Content-Lengths that are held; `buffer` is no smaller than the largest of
    them, for what is longer would go to a file. `answer_buffers` are of 64 kB, allocated when needed.
    """

    lengths: str
    buffer: str
    answer_buffers: int


# An event loop, ours or gevent's, does not mind a slow client.
HELD_FOR_LOOPS = Held(lengths="[0-9]{1,6}|[1-4][0-9]{6}", buffer="5m", answer_buffers=16)
# A worker that blocks serves nobody else until the last byte.
HELD_FOR_THREADS = Held(lengths="[0-9]{1,8}|[12][0-9]{8}", buffer="300m", answer_buffers=4800)


def find_template() -> Path:
    """Return the template's path: beside `container/` in a checkout, beside `pierhead/` in the image."""
    source_root = Path(__file__).parents[2]
    image, checkout = source_root / TEMPLATE_NAME, source_root.parent / TEMPLATE_NAME
    return image if image.is_file() else checkout


def render_nginx_config(
    template: Path,
    settings: Settings,
    *,
    run: RunFolder,
    servers: Sequence[ServerAddress],
    default_model: str,
    has_hooks: bool,
    is_embedded: bool,
) -> str:
    """Return the text of nginx.conf. The direct path is taken where there are no hooks."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["text"] = _quoted
    return environment.from_string(template.read_text()).render(
        settings=settings,
        run=run,
        servers=servers,
        default_model=quote(default_model, safe=""),
        has_hooks=has_hooks,
        is_embedded=is_embedded,
        cpus=available_cpus(),
        user=_worker_user(run.path),
        access_log=access_log_file(run.access_pipe) if settings.has_access_log else None,
        inference_header=_variable(INFERENCE_ID),
        target_header=_variable(TARGET_MODEL),
        name_pattern=name_pattern(1, LONGEST_DIRECT_NAME),
        long_name_pattern=name_pattern(LONGEST_DIRECT_NAME + 1, LONGEST_NAME),
        load_seconds=settings.wait_time_seconds + SECONDS_BESIDE_LOAD,
        attributes_header=_variable(CUSTOM_ATTRIBUTES),
        rules=attributes,
        errors=nginx_errors(settings),
        execution_parameters=execution_parameters(settings, has_hooks=has_hooks),
        held=_held(settings, uses_workers=has_hooks or not is_embedded or settings.multi_model),
        open_files=_open_files(),
        connections=min(MOST_CONNECTIONS, _open_files() - FILES_BESIDE_CONNECTIONS),
    )


def _variable(header: str) -> str:
    """Return the variable of nginx's that holds a request's header."""
    return f"$http_{header.lower().replace('-', '_')}"


def _quoted(value: object) -> str:
    """Return a value as one quoted word of nginx's language, in which `$` cannot be written."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    if "$" in text or "\n" in text:
        raise ConfigError([f"{text!r}: nginx's configuration cannot hold a dollar sign or a line break"])
    return f'"{text}"'


def _held(settings: Settings, *, uses_workers: bool) -> Held:
    blocks = uses_workers and settings.gunicorn_worker_class != "gevent"
    return HELD_FOR_THREADS if blocks else HELD_FOR_LOOPS


def _open_files() -> int:
    """Return how many files a worker of nginx may have open: what the system allows, up to what is of use."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN_FILES if most == resource.RLIM_INFINITY else min(most, MOST_OPEN_FILES)


def _worker_user(run: Path) -> str | None:
    """Return `user group` for nginx's workers, or None where we have no right to choose.

    Started by root, they give up its rights, unless the run folder lies where nobody else can get to.
    """
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("root")
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in (run, *run.resolve().parents)):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(UNPRIVILEGED_USER)
    else:
        log.warning("nginx's workers run as root: %s cannot reach the sockets in %s", UNPRIVILEGED_USER, run)
    return f"{entry.pw_name} {grp.getgrgid(entry.pw_gid).gr_name}"
