"""GUNICORN_CMD_ARGS: what is a setting of ours, what gunicorn gets, and what is refused."""

from __future__ import annotations

import pytest

from pierhead.errors import ConfigError
from pierhead.gunicorn_arguments import read_gunicorn_arguments
from pierhead.settings import Settings


def test_options_are_told_apart() -> None:
    arguments = read_gunicorn_arguments(
        "-w 2 --max-requests 10 --max-requests-jitter=5 --worker-class=gthread --threads 4 -t90 -e A=1 -e B=2"
    )

    assert {
        "SAGEMAKER_GUNICORN_WORKERS": "2",
        "SAGEMAKER_GUNICORN_WORKER_CLASS": "gthread",
        "SAGEMAKER_GUNICORN_THREADS": "4",
        "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "90",
    } == arguments.settings
    assert {"--max-requests=10", "--max-requests-jitter=5", "--env=A=1", "--env=B=2"} == set(arguments.passed)


def test_nothing_is_fine() -> None:
    assert read_gunicorn_arguments("").settings == {}
    assert read_gunicorn_arguments("").passed == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("--bind 0.0.0.0:80", "--bind cannot be used here: nginx finds the workers at a socket of the stack"),
        ("-b :80", "--bind cannot be used here"),
        ("--preload", "--preload cannot be used here: inference.py is loaded in each worker"),
        ("--keep-alive 5", "--keep-alive cannot be used here"),
        ("--reload", "--reload cannot be used here"),
        ("-c gunicorn.conf.py", "--config cannot be used here"),
        ("--worker-tmp-dir /dev/shm", "--worker-tmp-dir is not taken here; these are: --access-logfile"),
        ("--work 3", "--work is not taken here"),
        ("app:app", "app:app is not taken here"),
        ("--max-requests ten", "argument --max-requests: 'ten' is not a whole number"),
        ("--workers", "argument --workers/-w: expected one argument"),
        ("--name 'half", "No closing quotation"),
    ],
)
def test_what_would_break_the_stack_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings.from_env({"GUNICORN_CMD_ARGS": text})

    (problem,) = refused.value.problems
    assert problem.startswith("GUNICORN_CMD_ARGS=")
    assert sentence in problem


def test_an_option_wins_over_its_setting_in_every_program() -> None:
    given = {"SAGEMAKER_GUNICORN_WORKERS": "7", "GUNICORN_CMD_ARGS": "--workers 2 --timeout 90"}

    settings = Settings.from_env(given)

    assert 2 == settings.gunicorn_workers
    assert 90 == settings.gunicorn_timeout_seconds
    assert 90 == settings.proxy_read_timeout_seconds
    assert settings == Settings.from_env(settings.to_env())


def test_a_bad_value_names_its_source() -> None:
    with pytest.raises(ConfigError, match="SAGEMAKER_GUNICORN_WORKERS='no' of GUNICORN_CMD_ARGS: must be"):
        Settings.from_env({"GUNICORN_CMD_ARGS": "--workers no"})


@pytest.mark.parametrize("name", ["eventlet", "tornado", "gunicorn.workers.ggevent.GeventWorker", "asgi"])
@pytest.mark.parametrize("form", ["setting", "option"])
def test_other_worker_classes_are_refused_with_advice(name: str, form: str) -> None:
    option = {"GUNICORN_CMD_ARGS": f"--worker-class {name}"}
    given = option if form == "option" else {"SAGEMAKER_GUNICORN_WORKER_CLASS": name}

    with pytest.raises(ConfigError, match=r"must be gevent .* gthread .* sync .* stands in for eventlet"):
        Settings.from_env(given)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS"),
        ({"SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "90"}, "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS"),
        ({"PIERHEAD_TIMEOUT_SECONDS": "90"}, "PIERHEAD_TIMEOUT_SECONDS"),
    ],
)
def test_the_limit_names_its_setting_and_work_has_a_little_longer(given: dict[str, str], name: str) -> None:
    settings = Settings.from_env(given)

    assert name == settings.request_limit
    assert settings.proxy_read_timeout_seconds < settings.work_timeout_seconds
