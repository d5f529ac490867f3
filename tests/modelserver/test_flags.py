from __future__ import annotations

import pytest

from pierhead.errors import ConfigError
from pierhead.modelserver.flags import ServerFlags, flag_table, parse_flags, usage


def test_no_arguments_are_the_defaults_of_the_original() -> None:
    flags = parse_flags([]).flags

    assert (flags.port, flags.rest_api_port, flags.model_name) == (8500, 0, "default")
    assert (
        flags.rest_api_timeout_in_ms,
        flags.max_num_load_retries,
        flags.saved_model_tags,
    ) == (30000, 5, "serve")


@pytest.mark.parametrize(
    ("argument", "name", "expected"),
    [
        ("--port=0", "port", 0),
        ("--rest_api_timeout_in_ms=-1", "rest_api_timeout_in_ms", -1),
        ("--enable_batching", "enable_batching", True),
        ("--enable_batching=TRUE", "enable_batching", True),
        ("--enable_model_warmup=False", "enable_model_warmup", False),
        ("--model_name=", "model_name", ""),
        ("--model_name=a=b", "model_name", "a=b"),
        ("--per_process_gpu_memory_fraction=0.25", "per_process_gpu_memory_fraction", 0.25),
        ("--load_retry_interval_micros=9000000000", "load_retry_interval_micros", 9_000_000_000),
    ],
)
def test_value_is_read_by_the_type_of_its_flag(argument: str, name: str, expected: object) -> None:
    assert expected == getattr(parse_flags([argument]).flags, name)


@pytest.mark.parametrize(
    "argument",
    [
        "--port=85x",
        "--port=",
        "--port",
        "--port=2147483648",
        "--enable_batching=1",
        "--per_process_gpu_memory_fraction=half",
    ],
)
def test_bad_value_is_named(argument: str) -> None:
    with pytest.raises(ConfigError, match=argument.split("=", maxsplit=1)[0]):
        parse_flags([argument])


def test_all_bad_values_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_flags(["--port=x", "--rest_api_port=y"])

    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("argument", ["--no_such_flag=1", "-port=1", "port", "--help"])
def test_unknown_argument_is_collected(argument: str) -> None:
    assert (argument,) == parse_flags(["--port=1", argument]).unknown


def test_value_after_a_space_is_two_unknown_arguments_or_a_bad_value() -> None:
    with pytest.raises(ConfigError):
        parse_flags(["--port", "8500"])


def test_flag_without_effect_is_told_when_it_asks_for_something() -> None:
    parsed = parse_flags(["--enable_profiler=true", "--skip_initialize_tpu=true", "--port=1"])

    assert list(parsed.without_effect()) == ["skip_initialize_tpu"]
    assert all(parsed.without_effect().values())


def test_every_flag_of_the_original_is_known_and_explained() -> None:
    table = flag_table()

    assert len(table) == 48 + 5
    assert all(f"--{name}=" in usage() for name in table)
    assert all(flag.sentence for flag in table.values())


def test_flags_are_frozen() -> None:
    with pytest.raises(AttributeError):
        ServerFlags().port = 1  # type: ignore[misc]
