"""The few messages of TensorFlow that tensorflow-serving-api's stubs are made of, for where no TensorFlow is.

`MESSAGES` holds facts of the wire: for each message its fields, their numbers and types. `declare_messages`
makes them importable under TensorFlow's own names (`tensorflow.core.framework.tensor_pb2`). Fields that no
signature or tensor here uses are left out; protobuf keeps them unread.
"""

from __future__ import annotations

import sys
from types import ModuleType

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from pierhead.errors import Code
from pierhead.formats.dtypes import DTYPE_NUMBERS

__all__ = ["declare_messages"]

Field = descriptor_pb2.FieldDescriptorProto
PACKAGE = "tensorflow"
# Field types are protobuf's words; `repeated` and `map` (from strings) come before; other words are
# messages or enums.
MESSAGES: dict[str, dict[str, dict[str, tuple[int, str]]]] = {
    "tensorflow/core/framework/types.proto": {},
    "tensorflow/core/framework/tensor_shape.proto": {
        "TensorShapeProto.Dim": {"size": (1, "int64"), "name": (2, "string")},
        "TensorShapeProto": {"dim": (2, "repeated TensorShapeProto.Dim"), "unknown_rank": (3, "bool")},
    },
    "tensorflow/core/framework/tensor.proto": {
        "TensorProto": {
            "dtype": (1, "DataType"),
            "tensor_shape": (2, "TensorShapeProto"),
            "version_number": (3, "int32"),
            "tensor_content": (4, "bytes"),
            "half_val": (13, "repeated int32"),
            "float_val": (5, "repeated float"),
            "double_val": (6, "repeated double"),
            "int_val": (7, "repeated int32"),
            "string_val": (8, "repeated bytes"),
            "scomplex_val": (9, "repeated float"),
            "int64_val": (10, "repeated int64"),
            "bool_val": (11, "repeated bool"),
            "dcomplex_val": (12, "repeated double"),
            "uint32_val": (16, "repeated uint32"),
            "uint64_val": (17, "repeated uint64"),
            "float8_val": (18, "bytes"),
        }
    },
    "tensorflow/core/protobuf/meta_graph.proto": {
        "TensorInfo.CooSparse": {
            "values_tensor_name": (1, "string"),
            "indices_tensor_name": (2, "string"),
            "dense_shape_tensor_name": (3, "string"),
        },
        "TensorInfo": {
            "name": (1, "encoding/string"),
            "coo_sparse": (4, "encoding/TensorInfo.CooSparse"),
            "dtype": (2, "DataType"),
            "tensor_shape": (3, "TensorShapeProto"),
        },
        "SignatureDef": {
            "inputs": (1, "map TensorInfo"),
            "outputs": (2, "map TensorInfo"),
            "method_name": (3, "string"),
            "defaults": (4, "map TensorProto"),
        },
    },
    "tensorflow/core/protobuf/error_codes.proto": {},
    "tensorflow/core/example/feature.proto": {
        "BytesList": {"value": (1, "repeated bytes")},
        "FloatList": {"value": (1, "repeated float")},
        "Int64List": {"value": (1, "repeated int64")},
        "Feature": {
            "bytes_list": (1, "kind/BytesList"),
            "float_list": (2, "kind/FloatList"),
            "int64_list": (3, "kind/Int64List"),
        },
        "Features": {"feature": (1, "map Feature")},
    },
    "tensorflow/core/example/example.proto": {"Example": {"features": (1, "Features")}},
}
IMPORTS = {
    "tensorflow/core/framework/tensor.proto": ("framework/types", "framework/tensor_shape"),
    "tensorflow/core/protobuf/meta_graph.proto": (
        "framework/types",
        "framework/tensor_shape",
        "framework/tensor",
    ),
    "tensorflow/core/example/example.proto": ("example/feature",),
}
ENUMS = {
    "tensorflow/core/framework/types.proto": (
        "DataType",
        {"DT_INVALID": 0} | DTYPE_NUMBERS | {"DT_RESOURCE": 20, "DT_VARIANT": 21},
    ),
    "tensorflow/core/protobuf/error_codes.proto": ("Code", {code.name: code.value for code in Code}),
}
ENUM_NAMES = {"DataType"}
# Generated code looks for a publicly imported module as an attribute of the one that imports it; TensorFlow
# keeps its codes in such a file, here they are in the file itself.
ITSELF = {"tensorflow/core/protobuf/error_codes.proto": "xla_dot_tsl_dot_protobuf_dot_error__codes__pb2"}


def declare_messages() -> None:
    """Put the messages into protobuf's pool, and their modules where imports find them; once in a process."""
    if "tensorflow.core.framework.tensor_pb2" in sys.modules:
        return
    pool = descriptor_pool.Default()
    for path in MESSAGES:
        pool.AddSerializedFile(_file(path).SerializeToString())
        _add_module(path, pool.FindFileByName(path))


def _file(path: str) -> descriptor_pb2.FileDescriptorProto:
    package = "tensorflow.error" if "error_codes" in path else PACKAGE
    file = descriptor_pb2.FileDescriptorProto(name=path, package=package, syntax="proto3")
    file.dependency.extend(f"tensorflow/core/{name}.proto" for name in IMPORTS.get(path, ()))
    if path in ENUMS:
        name, values = ENUMS[path]
        enum = file.enum_type.add(name=name)
        for key, number in values.items():
            enum.value.add(name=key, number=number)
    nested = {name: fields for name, fields in MESSAGES[path].items() if "." in name}
    for name, fields in MESSAGES[path].items():
        if name not in nested:
            message = file.message_type.add(name=name)
            _add_fields(message, fields)
            for inner, inner_fields in nested.items():
                outer, _, own = inner.partition(".")
                if outer == name:
                    _add_fields(message.nested_type.add(name=own), inner_fields)
    return file


def _add_fields(message: descriptor_pb2.DescriptorProto, fields: dict[str, tuple[int, str]]) -> None:
    for name, (number, text) in fields.items():
        oneof, _, kind = text.rpartition("/")
        label, _, word = kind.rpartition(" ")
        if label == "map":
            word = _add_map_entry(message, name, word)
        field = message.field.add(name=name, number=number)
        field.label = Field.LABEL_REPEATED if label else Field.LABEL_OPTIONAL
        _set_type(field, word)
        if oneof:
            if not message.oneof_decl:
                message.oneof_decl.add(name=oneof)
            field.oneof_index = 0


def _add_map_entry(message: descriptor_pb2.DescriptorProto, field: str, word: str) -> str:
    """Add the message that holds a map's key and value, by protobuf's naming, and return its name."""
    entry = message.nested_type.add(name="".join(part.title() for part in field.split("_")) + "Entry")
    entry.options.map_entry = True
    _add_fields(entry, {"key": (1, "string"), "value": (2, word)})
    return f"{message.name}.{entry.name}"


def _set_type(field: descriptor_pb2.FieldDescriptorProto, word: str) -> None:
    scalar = f"TYPE_{word.upper()}"
    if scalar in Field.Type.keys():  # noqa: SIM118 - not a dict
        field.type = Field.Type.Value(scalar)
        return
    field.type = Field.TYPE_ENUM if word in ENUM_NAMES else Field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{word}"


def _add_module(path: str, file: FileDescriptor) -> None:
    module = _module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
    module.__dict__["DESCRIPTOR"] = file
    if path in ITSELF:
        module.__dict__[ITSELF[path]] = module
    for name, message in file.message_types_by_name.items():
        module.__dict__[name] = message_factory.GetMessageClass(message)
    for name, enum in file.enum_types_by_name.items():
        module.__dict__[name] = EnumTypeWrapper(enum)
        module.__dict__.update({value.name: value.number for value in enum.values})


def _module(name: str) -> ModuleType:
    """Return a new module, within packages that are made as needed."""
    module = ModuleType(name)
    sys.modules[name] = module
    parent, _, own = name.rpartition(".")
    if parent:
        package = sys.modules.get(parent) or _module(parent)
        package.__dict__.setdefault("__path__", [])
        setattr(package, own, module)
    return module
