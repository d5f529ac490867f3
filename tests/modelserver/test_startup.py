from __future__ import annotations

import pytest

from pierhead.errors import Code, ServingError
from pierhead.modelserver.flags import parse_flags
from pierhead.modelserver.startup import check_flags, configured_models

BASE_PATH = "--model_base_path=/m"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--port=0", BASE_PATH], "At least one of server_options.grpc_port"),
        ([], "Both server_options.model_base_path and server_options.model_config_file are empty!"),
        (
            ["--batching_parameters_file=/b", BASE_PATH],
            "without setting server_options.enable_batching",
        ),
        (["--use_alts_credentials", "--ssl_config_file=/s", BASE_PATH], "ssl_config_file"),
        (
            [
                BASE_PATH,
                "--tensorflow_session_parallelism=1",
                "--tensorflow_intra_op_parallelism=1",
                "--tensorflow_inter_op_parallelism=1",
            ],
            "tensorflow_session_parallelism",
        ),
    ],
)
def test_contradicting_flags_are_refused(arguments: list[str], expected: str) -> None:
    with pytest.raises(ServingError) as caught:
        check_flags(parse_flags(arguments).flags)

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert expected in caught.value.message


def test_two_flags_make_one_model() -> None:
    flags = parse_flags(["--model_name=half", "--model_base_path=/models/half"]).flags
    check_flags(flags)
    (model,) = configured_models(flags)

    assert (model.name, str(model.base_path)) == ("half", "/models/half")


def test_relative_base_path_is_refused() -> None:
    with pytest.raises(ServingError, match="absolute path or URI"):
        configured_models(parse_flags(["--model_base_path=models"]).flags)
