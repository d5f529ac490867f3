"""What the flags ask for, checked before TensorFlow is imported, so that a wrong start ends at once.

Messages: TensorFlow Serving's contract, section 3.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pierhead.errors import Code, ServingError
from pierhead.modelserver.flags import ServerFlags
from pierhead.modelserver.model_config import ModelConfig, check_base_path, read_model_config

__all__ = ["check_flags", "configured_models"]

LOG = logging.getLogger(__name__)


def check_flags(flags: ServerFlags) -> None:
    """Raise ServingError INVALID_ARGUMENT for flags that contradict one another or leave out a need."""
    split = flags.tensorflow_intra_op_parallelism and flags.tensorflow_inter_op_parallelism
    rules = {
        "At least one of server_options.grpc_port or server_options.grpc_socket_path must be set.": (
            flags.port or flags.grpc_socket_path
        ),
        "Both server_options.model_base_path and server_options.model_config_file are empty!": (
            flags.model_config_file or flags.model_base_path
        ),
        "server_options.batching_parameters_file is set without setting "
        "server_options.enable_batching to true.": (
            flags.enable_batching or not flags.batching_parameters_file
        ),
        "use_alts_credentials and ssl_config_file cannot both be set.": (
            not (flags.use_alts_credentials and flags.ssl_config_file)
        ),
        "tensorflow_session_parallelism cannot be set together with both "
        "tensorflow_intra_op_parallelism and tensorflow_inter_op_parallelism.": (
            not (flags.tensorflow_session_parallelism and split)
        ),
    }
    for message, is_kept in rules.items():
        if not is_kept:
            raise ServingError(Code.INVALID_ARGUMENT, message)


def configured_models(flags: ServerFlags) -> tuple[ModelConfig, ...]:
    """Return the models to serve; raise ServingError INVALID_ARGUMENT for a wrong configuration."""
    if not flags.model_config_file:
        base_path = check_base_path(flags.model_name, flags.model_base_path)
        return (ModelConfig(flags.model_name, base_path),)
    models = read_model_config(Path(flags.model_config_file))
    if not models:
        LOG.info("Taking no action for empty config.")
    return models
