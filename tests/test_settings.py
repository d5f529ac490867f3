"""The table of settings: what each text means, what is refused, and what follows from what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pierhead.errors import ConfigError
from pierhead.settings import (
    TABLE,
    LogSettings,
    PortRange,
    Settings,
    available_cpus,
    boolean,
    choice,
    file_name,
    folder,
    fraction,
    inherited_log,
    integer,
    log_level,
    log_settings,
    model_name,
    port_range,
    settings_table,
    unknown_names,
)

DOCUMENTED_DEFAULTS = (
    ("SAGEMAKER_TFS_DEFAULT_MODEL_NAME", ""),
    ("SAGEMAKER_TFS_ENABLE_BATCHING", "false"),
    ("SAGEMAKER_TFS_MAX_BATCH_SIZE", "8"),
    ("SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS", "1000"),
    ("SAGEMAKER_TFS_NUM_BATCH_THREADS", ""),
    ("SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES", ""),
    ("SAGEMAKER_TFS_INTRA_OP_PARALLELISM", "0"),
    ("SAGEMAKER_TFS_INTER_OP_PARALLELISM", "0"),
    ("SAGEMAKER_TFS_INSTANCE_COUNT", "1"),
    ("SAGEMAKER_TFS_WAIT_TIME_SECONDS", "60"),
    ("SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN", "0.2"),
    ("SAGEMAKER_GUNICORN_WORKERS", "1"),
    ("SAGEMAKER_GUNICORN_THREADS", "1"),
    ("SAGEMAKER_GUNICORN_WORKER_CLASS", "gevent"),
    ("SAGEMAKER_GUNICORN_TIMEOUT_SECONDS", "30"),
    ("SAGEMAKER_GUNICORN_LOGLEVEL", ""),
    ("SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS", "60"),
    ("SAGEMAKER_TFS_NGINX_LOGLEVEL", ""),
    ("SAGEMAKER_MULTI_MODEL", "false"),
    ("SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET", ""),
    ("SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX", ""),
    ("PIERHEAD_MEMORY_WATERMARK_PERCENT", "90"),
    ("SAGEMAKER_BIND_TO_PORT", "8080"),
    ("SAGEMAKER_SAFE_PORT_RANGE", ""),
    ("SAGEMAKER_BATCH", "false"),
    ("OMP_NUM_THREADS", "1"),
)
UNSET = (
    "default_model_name",
    "num_batch_threads_set",
    "max_enqueued_batches_set",
    "safe_port_range",
    "universal_bucket",
    "universal_prefix",
    "max_payload_mb",
    "max_concurrent_transforms",
    "batch_strategy",
    "run_dir",
    "timeout_seconds",
)


def read(**environ: str) -> Settings:
    return Settings.from_env(environ)


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("8", 8), ("007", 7), (str(2**63 - 1), 2**63 - 1)])
def test_integer_is_accepted(text: str, value: int) -> None:
    assert value == integer(1)(text)


@pytest.mark.parametrize(
    "text", ["0", "-1", "", "+1", "1.0", "1e3", " 1", "1 ", "0x10", "1_000", "ten", "²", "٣", "--1", "None"]
)
def test_integer_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        integer(1)(text)


def test_integer_above_the_largest_is_refused_with_both_bounds() -> None:
    with pytest.raises(ValueError, match="must be a whole number from 1 to 65535"):
        integer(1, 65535)("65536")


def test_negative_integer_is_accepted_where_the_minimum_allows_it() -> None:
    assert integer(-2)("-2") == -2


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0.0), ("1", 1.0), ("0.25", 0.25), (".5", 0.5), ("1e-1", 0.1)]
)
def test_fraction_is_accepted(text: str, value: float) -> None:
    assert value == fraction(text)


@pytest.mark.parametrize("text", ["-0.1", "1.01", "nan", "inf", "-inf", "20%", "0,2", "half", ""])
def test_fraction_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number from 0 to 1"):
        fraction(text)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False)]
)
def test_boolean_is_accepted_in_any_case(text: str, value: bool) -> None:
    assert value is boolean(text)


@pytest.mark.parametrize("text", ["1", "0", "yes", "no", "on", "off", "t", "", " true", "None"])
def test_boolean_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be true or false"):
        boolean(text)


@pytest.mark.parametrize("text", ["gevent", "GEvent"])
def test_choice_is_accepted_in_any_case(text: str) -> None:
    assert choice("gevent", "sync")(text) == "gevent"


@pytest.mark.parametrize("text", ["", "gevent ", "eventlet"])
def test_choice_outside_the_options_is_refused_with_all_of_them(text: str) -> None:
    with pytest.raises(ValueError, match="must be one of gevent, sync"):
        choice("gevent", "sync")(text)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("9000-9010", 9000, 9010),
        ("1-65535", 1, 65535),
        ("9000-9000", 9000, 9000),
        ("9000 - 9010", 9000, 9010),
    ],
)
def test_port_range_is_accepted(text: str, low: int, high: int) -> None:
    assert PortRange(low, high) == port_range(text)


@pytest.mark.parametrize(
    "text", ["9000", "9010-9000", "0-10", "1-65536", "-", "9000-", "-9010", "a-b", "1-2-3", "9000:9010", ""]
)
def test_port_range_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be LOW-HIGH"):
        port_range(text)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("info", "info"),
        ("WARNING", "warning"),
        ("10", "debug"),
        ("20", "info"),
        ("30", "warning"),
        ("50", "critical"),
    ],
)
def test_log_level_is_a_name_or_a_number(text: str, level: str) -> None:
    assert level == log_level(text)


@pytest.mark.parametrize("text", ["", "0", "25", "warn", "loud"])
def test_log_level_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be one of debug, info"):
        log_level(text)


LOG_VARIABLES = (
    "SAGEMAKER_CONTAINER_LOG_LEVEL",
    "SAGEMAKER_GUNICORN_LOGLEVEL",
    "SAGEMAKER_TFS_NGINX_LOGLEVEL",
)


@pytest.mark.parametrize(
    ("levels", "gunicorn", "nginx", "has_access_log"),
    [
        (("", "", ""), "info", "error", True),
        (("20", "", ""), "info", "error", True),
        (("debug", "", ""), "debug", "info", True),
        (("warning", "", ""), "warning", "error", False),
        (("error", "", ""), "error", "error", False),
        (("50", "", ""), "critical", "crit", False),
        (("error", "debug", "info"), "debug", "info", True),
        (("error", "", "notice"), "error", "notice", True),
        (("", "", "warn"), "info", "warn", False),
        (("debug", "error", "error"), "error", "error", False),
    ],
)
def test_level_reaches_every_program_that_has_none_of_its_own(
    levels: tuple[str, str, str], gunicorn: str, nginx: str, has_access_log: bool
) -> None:
    settings = read(**dict(zip(LOG_VARIABLES, levels, strict=True)))

    assert (gunicorn, nginx, has_access_log) == (
        settings.gunicorn_loglevel,
        settings.nginx_loglevel,
        settings.has_access_log,
    )


def test_log_settings_are_read_without_the_others() -> None:
    environ = {
        "PIERHEAD_LOG_FORMAT": "JSON",
        "SAGEMAKER_CONTAINER_LOG_LEVEL": "10",
        "SAGEMAKER_BIND_TO_PORT": "no",
        "PIERHEAD_LOG_FD": "1",
    }

    assert LogSettings("debug", "json", 1) == log_settings(environ)
    with pytest.raises(ConfigError, match="PIERHEAD_LOG_FORMAT='xml'"):
        log_settings({"PIERHEAD_LOG_FORMAT": "xml"})


@pytest.mark.parametrize("text", ["", "x", "-1", "987654321"])
def test_descriptor_that_is_not_open_is_not_the_log(text: str) -> None:
    assert inherited_log({"PIERHEAD_LOG_FD": text}) == 2


@pytest.mark.parametrize("text", ["inference.py", "my handler.py"])
def test_file_name_is_accepted(text: str) -> None:
    assert text == file_name(text)


@pytest.mark.parametrize("text", ["", "inference", "code/inference.py", "../inference.py", "/x.py", "x.pyc"])
def test_file_name_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be the name of a Python file"):
        file_name(text)


@pytest.mark.parametrize("text", ["half_plus_two", "a.b-c", "ä b"])
def test_model_name_is_accepted(text: str) -> None:
    assert text == model_name(text)


@pytest.mark.parametrize("text", ["a/b", "/", ".", "..", ".hidden"])
def test_model_name_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a model's name"):
        model_name(text)


@pytest.mark.parametrize(("text", "path"), [("/opt/ml", Path("/opt/ml")), ("ml", Path.cwd() / "ml")])
def test_folder_is_absolute(text: str, path: Path) -> None:
    assert path == folder(text)


@pytest.mark.parametrize(("variable", "default"), DOCUMENTED_DEFAULTS)
def test_documented_variable_has_its_documented_default(variable: str, default: str) -> None:
    defaults = {row.variable: row.default for row in TABLE}

    assert default == defaults[variable]


@pytest.mark.parametrize("field", UNSET)
def test_setting_that_is_absent_and_has_no_default_is_none(field: str) -> None:
    assert getattr(read(), field) is None


def test_variables_are_declared_once() -> None:
    variables = [row.variable for row in TABLE]

    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.variable)
def test_empty_text_counts_as_not_set(row: Any) -> None:
    assert read() == Settings.from_env({row.variable: ""})


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.variable)
def test_setting_is_described_by_a_sentence(row: Any) -> None:
    assert row.sentence.endswith(".")
    assert row.sentence[0].isupper() or row.sentence.startswith("nginx")


def test_refusal_names_the_variable_its_text_and_the_rule() -> None:
    with pytest.raises(ConfigError) as refusal:
        read(SAGEMAKER_MULTI_MODEL="yes")

    assert refusal.value.problems == ("SAGEMAKER_MULTI_MODEL='yes': must be true or false",)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refusal:
        read(
            SAGEMAKER_GUNICORN_WORKERS="0",
            SAGEMAKER_BATCH="1",
            SAGEMAKER_SAFE_PORT_RANGE="9",
            OMP_NUM_THREADS="x",
        )

    named = {problem.partition("=")[0] for problem in refusal.value.problems}
    assert {
        "SAGEMAKER_GUNICORN_WORKERS",
        "SAGEMAKER_BATCH",
        "SAGEMAKER_SAFE_PORT_RANGE",
        "OMP_NUM_THREADS",
    } == named
    for problem in refusal.value.problems:
        assert problem in str(refusal.value)


def test_port_range_too_small_for_the_model_servers_is_refused() -> None:
    with pytest.raises(ConfigError, match="must hold 4 ports"):
        read(SAGEMAKER_SAFE_PORT_RANGE="9000-9002", SAGEMAKER_TFS_INSTANCE_COUNT="2")


def test_port_range_just_large_enough_is_accepted() -> None:
    settings = read(SAGEMAKER_SAFE_PORT_RANGE="9000-9003", SAGEMAKER_TFS_INSTANCE_COUNT="2")

    assert PortRange(9000, 9003) == settings.safe_port_range


@pytest.mark.parametrize("end", ["BUCKET", "PREFIX"])
def test_half_of_the_universal_hooks_place_is_refused_and_both_names_are_given(end: str) -> None:
    with pytest.raises(ConfigError, match=r"UNIVERSAL_BUCKET and \w+_UNIVERSAL_PREFIX: must be set together"):
        read(**{f"SAGEMAKER_MULTI_MODEL_UNIVERSAL_{end}": "team"})


def test_whole_place_of_the_universal_hooks_is_accepted() -> None:
    settings = read(
        SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET="models", SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX="team/code/"
    )

    assert ("models", "team/code/") == (settings.universal_bucket, settings.universal_prefix)


@pytest.mark.parametrize("text", ["0", "101", "90%", "0.9", "-1"])
def test_memory_watermark_outside_the_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a whole number from 1 to 100"):
        read(PIERHEAD_MEMORY_WATERMARK_PERCENT=text)


def test_foreign_variables_are_not_read() -> None:
    assert read() == read(PATH="/bin", HOME="/root")


def test_settings_survive_the_environment() -> None:
    settings = read(
        SAGEMAKER_TFS_DEFAULT_MODEL_NAME="ä b",
        SAGEMAKER_TFS_INSTANCE_COUNT="2",
        SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN="0.1",
        SAGEMAKER_SAFE_PORT_RANGE="9000-9010",
        SAGEMAKER_BATCH="True",
        SAGEMAKER_CONTAINER_LOG_LEVEL="10",
        SAGEMAKER_BASE_DIR="/tmp/ml dir",
        PIERHEAD_RUN_DIR="/tmp/run",
        SAGEMAKER_TRITON_LOG_INFO="false",
        SAGEMAKER_MAX_PAYLOAD_IN_MB="0",
    )

    assert settings == Settings.from_env(settings.to_env())


def test_defaults_survive_the_environment() -> None:
    assert read() == Settings.from_env(read().to_env())


def test_environment_made_from_settings_leaves_out_what_is_unset() -> None:
    environ = read().to_env()

    assert "SAGEMAKER_SAFE_PORT_RANGE" not in environ
    assert "None" not in environ.values()
    assert environ["SAGEMAKER_BATCH"] == "false"


@pytest.mark.parametrize(
    ("environ", "gunicorn", "nginx"),
    [
        ({}, 30, 60),
        ({"SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "90"}, 90, 90),
        ({"SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "10"}, 30, 30),
        ({"SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS": "120"}, 30, 120),
        ({"PIERHEAD_TIMEOUT_SECONDS": "300"}, 300, 300),
        ({"PIERHEAD_TIMEOUT_SECONDS": "45"}, 45, 60),
        ({"PIERHEAD_TIMEOUT_SECONDS": "5"}, 30, 60),
        ({"PIERHEAD_TIMEOUT_SECONDS": "100", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "200"}, 200, 200),
    ],
)
def test_timeouts_are_raised_together_and_never_lowered(
    environ: dict[str, str], gunicorn: int, nginx: int
) -> None:
    settings = Settings.from_env(environ)

    assert (gunicorn, nginx) == (settings.gunicorn_timeout_seconds, settings.proxy_read_timeout_seconds)


def test_batching_takes_as_many_threads_and_waiting_batches_as_cpus() -> None:
    settings = read()

    assert settings.num_batch_threads == available_cpus()
    assert settings.max_enqueued_batches == available_cpus()


def test_transform_job_waits_with_many_batches() -> None:
    assert read(SAGEMAKER_BATCH="true").max_enqueued_batches == 100_000_000


def test_waiting_batches_that_are_set_hold_in_a_transform_job_too() -> None:
    settings = read(SAGEMAKER_BATCH="true", SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES="5")

    assert settings.max_enqueued_batches == 5


def test_model_folder_is_below_the_base_folder() -> None:
    assert Path("/opt/ml/model") == read().model_dir
    assert Path("/data/model") == read(SAGEMAKER_BASE_DIR="/data").model_dir


def test_unknown_name_is_warned_about_with_the_nearest_known() -> None:
    warnings = list(unknown_names({"SAGEMAKER_TFS_INSTANCE_COUNTS": "2"}))

    assert warnings == [
        "SAGEMAKER_TFS_INSTANCE_COUNTS is not a setting and has no effect; "
        "did you mean SAGEMAKER_TFS_INSTANCE_COUNT?"
    ]


def test_unknown_name_like_no_other_is_warned_about_without_advice() -> None:
    name = "PIERHEAD_" + 30 * "Q"

    assert [f"{name} is not a setting and has no effect"] == list(unknown_names({name: ""}))


def test_known_and_foreign_names_are_not_warned_about() -> None:
    environ = {row.variable: row.default for row in TABLE} | {
        "PATH": "/bin",
        "SAGEMAKER_REGION": "mars-west-1",
    }

    assert list(unknown_names(environ)) == []


def test_table_of_the_manual_has_a_row_for_each_setting() -> None:
    head, rule, *rows = settings_table().splitlines()

    assert head.count("|") == rule.count("|") == 4
    assert [f"| `{row.variable}` | {row.sentence} | {row.shown_default} |" for row in TABLE] == rows
    assert all(row.shown_default for row in TABLE)


@pytest.mark.parametrize("text", ["a\nb", "a\r\nX-Evil: 1"])
def test_default_accept_with_a_line_break_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"):
        read(SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT=text)
