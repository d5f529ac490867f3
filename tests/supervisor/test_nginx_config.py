"""The text of nginx.conf, as the real nginx judges it (`nginx -t`)."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from pierhead.control import ServerAddress
from pierhead.errors import PierheadError
from pierhead.settings import Settings
from pierhead.supervisor.binaries import find_nginx
from pierhead.supervisor.nginx_config import find_template, render_nginx_config
from pierhead.supervisor.run_folder import RunFolder

SERVERS = (ServerAddress(9000, 8501), ServerAddress(9001, 8502), ServerAddress(9002, 8503))
DISTRIBUTION_NGINX = "/usr/sbin/nginx"
BINARIES = sorted({find_nginx(), *filter(None, [shutil.which(DISTRIBUTION_NGINX)])})


def render(
    run: RunFolder,
    environ: dict[str, str] | None = None,
    *,
    servers: int = 1,
    default_model: str = "m",
    has_hooks: bool = False,
    is_embedded: bool = True,
) -> str:
    return render_nginx_config(
        find_template(),
        Settings.from_env(environ or {}),
        run=run,
        servers=SERVERS[:servers],
        default_model=default_model,
        has_hooks=has_hooks,
        is_embedded=is_embedded,
    )


def check(text: str, run: RunFolder, binary: str | None = None) -> None:
    """Let nginx read the configuration; fail with what it says where it refuses."""
    run.nginx_config.write_text(text)
    command = [
        binary or find_nginx(),
        "-t",
        "-p",
        f"{run.nginx}/",
        "-c",
        str(run.nginx_config),
        "-e",
        "stderr",
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert result.returncode == 0, result.stderr
    assert "[warn]" not in result.stderr


@pytest.fixture
def run(short_folder: Path) -> RunFolder:
    return RunFolder.make(short_folder / "run")


@pytest.mark.parametrize("binary", BINARIES)
@pytest.mark.parametrize(
    ("has_hooks", "is_embedded", "servers"), list(itertools.product([True, False], [True, False], [1, 3]))
)
def test_configuration_is_accepted(
    has_hooks: bool, is_embedded: bool, servers: int, binary: str, run: RunFolder
) -> None:
    text = render(run, has_hooks=has_hooks, is_embedded=is_embedded, servers=servers)

    check(text, run, binary)


@pytest.mark.parametrize("name", ["a b", "it's", 'a"b', "a;b", "a{b}", "a#b", "a:b", "a\\b", "ä"])
def test_run_folder_may_have_any_name(name: str, short_folder: Path) -> None:
    run = RunFolder.make(short_folder / name)

    check(render(run), run)


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("half_plus_two", "half_plus_two"),
        ("a b", "a%20b"),
        ('a"b', "a%22b"),
        ("it's", "it%27s"),
        ("a$b", "a%24b"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("a;b{c}", "a%3Bb%7Bc%7D"),
        ("a\nb", "a%0Ab"),
        ("a?b#c", "a%3Fb%23c"),
        ("a%b", "a%25b"),
    ],
)
def test_default_model_is_percent_encoded(name: str, quoted: str, run: RunFolder) -> None:
    text = render(run, default_model=name)

    assert f'"{quoted}";' in text
    check(text, run)


@pytest.mark.parametrize(
    "accept", ['text/csv;header="present"', "it's/x", "*/*", "text/csv; q=0.5, */*;q=0.1"]
)
def test_default_accept_may_hold_quotes(accept: str, run: RunFolder) -> None:
    check(render(run, {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": accept}), run)


def test_default_accept_with_a_dollar_is_refused_with_its_variable(run: RunFolder) -> None:
    with pytest.raises(PierheadError, match="SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"):
        render(run, {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/$x"})


def test_run_folder_with_a_dollar_is_refused_with_its_variable(short_folder: Path) -> None:
    with pytest.raises(PierheadError, match="PIERHEAD_RUN_DIR"):
        render(RunFolder.make(short_folder / "a$b"))


@pytest.mark.parametrize("level", ["debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"])
def test_every_log_level_is_nginx_s_own(level: str, run: RunFolder) -> None:
    text = render(run, {"SAGEMAKER_TFS_NGINX_LOGLEVEL": level})

    assert f"error_log stderr {level};" in text
    check(text, run)


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({}, "client_max_body_size 0m;"),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, "client_max_body_size 0m;"),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "6"}, "client_max_body_size 6m;"),
        ({}, "proxy_read_timeout 60s;"),
        ({"SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "90"}, "proxy_read_timeout 90s;"),
        ({"PIERHEAD_TIMEOUT_SECONDS": "3600"}, "proxy_read_timeout 3600s;"),
        ({"SAGEMAKER_BIND_TO_PORT": "18080"}, "listen 18080 "),
    ],
)
def test_setting_is_in_the_configuration(environ: dict[str, str], line: str, run: RunFolder) -> None:
    text = render(run, environ)

    assert line in text
    check(text, run)


def test_model_servers_are_those_handed_in(run: RunFolder) -> None:
    text = render(run, servers=3)

    assert all(f"server 127.0.0.1:{server.rest_port} " in text for server in SERVERS)


def test_hooks_leave_no_direct_path(run: RunFolder) -> None:
    text = render(run, has_hooks=True)

    assert "/v1/models/" not in text


def test_template_with_an_unknown_name_is_an_error(run: RunFolder, tmp_path: Path) -> None:
    template = tmp_path / "nginx.conf.template"
    template.write_text("{{ settings.not_a_setting }}")

    with pytest.raises(Exception, match="not_a_setting"):
        render_nginx_config(
            template,
            Settings.from_env({}),
            run=run,
            servers=(),
            default_model="m",
            has_hooks=True,
            is_embedded=True,
        )


def test_template_is_found() -> None:
    assert find_template().is_file()


def test_no_model_server_is_needed_behind_hooks(run: RunFolder) -> None:
    text = render(run, servers=0, has_hooks=True)

    assert "model_servers" not in text
    check(text, run)


@pytest.mark.parametrize("binary", BINARIES)
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("levels", "is_written"),
    [
        ({}, True),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "error"}, False),
        ({"SAGEMAKER_TFS_NGINX_LOGLEVEL": "warn"}, False),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "error", "SAGEMAKER_TFS_NGINX_LOGLEVEL": "notice"}, True),
    ],
)
def test_access_lines_are_written_where_the_level_allows_it(
    levels: dict[str, str], is_written: bool, form: str, binary: str, run: RunFolder
) -> None:
    text = render(run, {"PIERHEAD_LOG_FORMAT": form, "PIERHEAD_METRICS": "off", **levels})

    assert is_written == ("access if=$is_logged" in text)
    assert is_written != ("access_log off;\n    server_tokens" in text)
    check(text, run, binary)
