"""Session options from a PlatformConfigMap text proto, which takes the place of the flags for sessions.

tensorflow-serving-api ships no stub for what such a file holds inside, so `FIELDS` states its facts of the
wire. Different from the original: batching is asked for by its own flags even then.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

# Before its messages: where a config file was read, stubs stand in for them until TensorFlow itself is there.
import tensorflow as tf  # noqa: F401
from google.protobuf import descriptor_pb2, message_factory, text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.config import platform_config_pb2

from pierhead.errors import Code, ServingError
from pierhead.modelserver.runtimes.session_options import SessionOptions

__all__ = ["read_platform_config"]

LOG = logging.getLogger(__name__)
PLATFORM = "tensorflow"
PACKAGE = "tensorflow.serving"
ADAPTER = "SavedModelBundleSourceAdapterConfig"
Field = descriptor_pb2.FieldDescriptorProto
# What else there is stays unread, as text format's parser is told below.
FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    ADAPTER: {"legacy_config": (1000, f".{PACKAGE}.SessionBundleConfig")},
    "SessionBundleConfig": {
        "session_target": (1, ""),
        "session_config": (2, ".tensorflow.ConfigProto"),
        "saved_model_tags": (6, "repeated"),
    },
}


def read_platform_config(path: Path) -> SessionOptions:
    """Return what a file says of the platform `tensorflow`; raise ServingError where it cannot be read."""
    platforms, pool = platform_config_pb2.PlatformConfigMap(), _pool()
    adapter: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{ADAPTER}"))()
    try:
        text_format.Parse(path.read_text(), platforms, allow_unknown_field=True, descriptor_pool=pool)
        packed = platforms.platform_configs[PLATFORM].source_adapter_config
        if packed.type_url and not packed.type_url.endswith(f"/{PACKAGE}.{ADAPTER}"):
            raise _invalid(path, f"{packed.type_url} is no {ADAPTER}")
        adapter.ParseFromString(packed.value)
    except (OSError, UnicodeDecodeError, text_format.ParseError, DecodeError) as problem:
        raise _invalid(path, str(problem)) from problem
    LOG.info("sessions are made as %s says; batching only as its own flags say", path)
    session = adapter.legacy_config
    return SessionOptions(
        tags=tuple(session.saved_model_tags) or ("serve",),
        file_config=session.session_config.SerializeToString(),
    )


def _invalid(path: Path, problem: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, f"Invalid protobuf file: '{path}' ({problem})")


def _pool() -> DescriptorPool:
    """Return a pool of the messages above, and of TensorFlow's ConfigProto."""
    pool = DescriptorPool()
    _copy(pool, config_pb2.DESCRIPTOR, set())
    file = descriptor_pb2.FileDescriptorProto(name="platform.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append(config_pb2.DESCRIPTOR.name)
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for key, (number, kind) in fields.items():
            field = message.field.add(name=key, number=number, label=Field.LABEL_OPTIONAL)
            if kind == "repeated":
                field.label = Field.LABEL_REPEATED
            field.type = Field.TYPE_STRING
            if kind.startswith("."):
                field.type, field.type_name = Field.TYPE_MESSAGE, kind
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _copy(pool: DescriptorPool, file: Any, known: set[str]) -> None:
    """Add a file to a pool after those that it needs."""
    if file.name in known:
        return
    known.add(file.name)
    for needed in file.dependencies:
        _copy(pool, needed, known)
    pool.AddSerializedFile(file.serialized_pb)
