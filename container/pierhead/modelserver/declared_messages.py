"""Small protobuf messages whose generated code is not among the dependencies, declared from tables.

The classes live in a pool of their own, so that generated code of the same package can stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["declare_messages"]

Field = descriptor_pb2.FieldDescriptorProto


def declare_messages(package: str, messages: Mapping[str, Mapping[str, tuple[int, str]]]) -> dict[str, Any]:
    """Return message classes by name; fields have a number and a type: protobuf's word or a message's.

    `repeated` may come before it.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for key, (number, kind) in fields.items():
            repeated, _, word = kind.rpartition(" ")
            label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
            field = message.field.add(name=key, number=number, label=label)
            if word in messages:
                field.type, field.type_name = Field.TYPE_MESSAGE, f".{package}.{word}"
            else:
                field.type = Field.Type.Value(f"TYPE_{word.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }
