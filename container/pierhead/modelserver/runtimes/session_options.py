"""How Sessions are made: a ConfigProto from a file, and what flags say on top of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

# TensorFlow comes first: its own start must not happen in the middle of one of its messages.
import tensorflow as tf  # noqa: F401
from google.protobuf import text_format
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from pierhead.errors import Code, ServingError

__all__ = ["SessionOptions", "read_session_config"]

BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class SessionOptions:
    """Threads (0 is TensorFlow's choice), the share of a GPU's memory, graph tags, the precision of matrices.

    `file_config` is a serialised ConfigProto; what is set beside it wins.
    """

    intra_op_threads: int = 0
    inter_op_threads: int = 0
    gpu_memory_fraction: float = 0.0
    tags: tuple[str, ...] = ("serve",)
    mixed_precision: str = ""
    file_config: bytes = b""

    def config(self) -> Any:
        """Return the ConfigProto of these options."""
        config = config_pb2.ConfigProto.FromString(self.file_config)
        config.allow_soft_placement = True
        if self.intra_op_threads:
            config.intra_op_parallelism_threads = self.intra_op_threads
        if self.inter_op_threads:
            config.inter_op_parallelism_threads = self.inter_op_threads
        if self.gpu_memory_fraction:
            config.gpu_options.per_process_gpu_memory_fraction = self.gpu_memory_fraction
        if self.mixed_precision == BFLOAT16:
            rewriting = config.graph_options.rewrite_options
            rewriting.auto_mixed_precision_onednn_bfloat16 = rewriter_config_pb2.RewriterConfig.ON
        return config


def read_session_config(path: Path) -> bytes:
    """Return the ConfigProto of a text proto file, serialised; raise ServingError where it cannot be read."""
    config = config_pb2.ConfigProto()
    try:
        text_format.Parse(path.read_text(), config)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as problem:
        raise ServingError(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{path}' ({problem})") from problem
    serialised: bytes = config.SerializeToString()
    return serialised
