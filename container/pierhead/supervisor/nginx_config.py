"""Writes nginx's configuration from nginx.conf.template, the only place where nginx is configured."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import jinja2

from pierhead.control import ServerAddress
from pierhead.errors import ConfigError
from pierhead.settings import Settings, available_cpus
from pierhead.supervisor.run_folder import RunFolder

__all__ = ["find_template", "render_nginx_config"]

TEMPLATE_NAME = "nginx.conf.template"
UNPRIVILEGED_USER = "nobody"
STANDARD_OUTPUT = "/dev/stdout"
log = logging.getLogger(__name__)


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
        access_log=_access_log(),
    )


def _quoted(value: object) -> str:
    """Return a value as one quoted word of nginx's language, in which `$` cannot be written."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    if "$" in text or "\n" in text:
        raise ConfigError([f"{text!r}: nginx's configuration cannot hold a dollar sign or a line break"])
    return f'"{text}"'


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


def _access_log() -> str | None:
    """Return a file for the access log: standard output, where that can be opened again.

    It cannot where it is a socket, or a file of the user who started us as somebody else.
    """
    try:
        os.close(os.open(STANDARD_OUTPUT, os.O_WRONLY | os.O_APPEND))
    except OSError as problem:
        log.warning("no access log: nginx cannot write to standard output: %s", problem.strerror)
        return None
    return STANDARD_OUTPUT
