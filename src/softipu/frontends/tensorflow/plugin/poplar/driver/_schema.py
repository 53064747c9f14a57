"""Protocol-buffer messages and enumerations from short tables, without a compiler of .proto files.

The names are those that IPU programs import; the numbers of fields are our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.internal import enum_type_wrapper  # type: ignore[import-untyped]

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "int": _Field.TYPE_INT64,
    "float": _Field.TYPE_DOUBLE,
    "str": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}
_PACKAGE = "softipu.poplarplugin"


def build(
    name: str,
    messages: Mapping[str, Mapping[str, str]] | None = None,
    enums: Mapping[str, Sequence[str]] | None = None,
    oneofs: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The classes of the messages, wrappers of the enumerations, and the latter's values by name.

    A field's type is a scalar, a message or an enumeration of the table, with `*` behind it where
    it is repeated. An enumeration "Message.Name" belongs to that message. `oneofs` names for
    a message the one group that all its fields share.
    """
    messages, enums, oneofs = messages or {}, enums or {}, oneofs or {}
    file = descriptor_pb2.FileDescriptorProto(name=name, package=_PACKAGE, syntax="proto3")
    made = {message: file.message_type.add(name=message) for message in messages}
    for path, values in enums.items():
        owner, _, short = path.rpartition(".")
        enum = (made[owner] if owner else file).enum_type.add(name=short)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for message, fields in messages.items():
        _add_fields(made[message], fields, set(enums), oneofs.get(message))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {
        message: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{message}")
        )
        for message in messages
    }
    return found | _top_level(pool, enums)


def _top_level(
    pool: descriptor_pool.DescriptorPool, enums: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for path, values in enums.items():
        if "." in path:
            continue
        descriptor = pool.FindEnumTypeByName(f"{_PACKAGE}.{path}")
        names[path] = enum_type_wrapper.EnumTypeWrapper(descriptor)
        names |= {value: number for number, value in enumerate(values)}
    return names


def _add_fields(
    message: descriptor_pb2.DescriptorProto,
    fields: Mapping[str, str],
    enums: set[str],
    oneof: str | None,
) -> None:
    if oneof:
        message.oneof_decl.add(name=oneof)
    for number, (name, kind) in enumerate(fields.items(), start=1):
        kind, repeated = kind.removesuffix("*"), kind.endswith("*")
        field = message.field.add(
            name=name,
            number=number,
            label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
        )
        if oneof:
            field.oneof_index = 0
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
            continue
        field.type = _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
