"""How each kind of value is written into a fingerprint, as two tables of small functions.

Only C code of Python and torch looks at the values: no method of a user's class is called. Objects
that have a state which can't be seen that way are refused by name.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import logging
import operator
import pathlib
import re
import sys
import types
import typing
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils.hooks import RemovableHandle

from . import _fingerprint_modules as modules
from . import _fingerprint_numpy as numpy
from . import _fingerprint_reach as reach
from ._fingerprint_code import code_digest, primitive
from ._fingerprint_origin import (
    OURS,
    PYTHON,
    full_name,
    is_plain_data,
    library_of_module,
    module_of,
    name_of,
)
from ._fingerprint_torch import PLAIN_TENSORS, class_of, content_digest

if TYPE_CHECKING:
    from ._fingerprint_walk import Path, Walker

_Writer = Callable[["Walker", Any, "Path"], None]
_MANAGED_DICT = 1 << 4 if sys.version_info >= (3, 11) else 0
_POINTER = tuple.__itemsize__
_ABOUT_LOGGING = frozenset({"disabled", "getEffectiveLevel", "isEnabledFor", "level"})
#: Methods of pathlib.Path that look at the disk.
_DISK = frozenset(
    {"exists", "glob", "is_dir", "is_file", "iterdir", "lstat", "open", "read_bytes", "read_text"}
    | {"resolve", "rglob", "stat"}
)


def describe(walker: Walker, value: Any, path: Path) -> None:
    """Writes what a numbered value is."""
    kind = class_of(value)
    writer = _EXACT.get(kind)
    if writer is not None:
        writer(walker, value, path)
    elif type in kind.__mro__:
        reach.describe_class(walker, value, path)
    elif reach.is_module(value):
        reach.describe_module(walker, value, path)
    elif torch.nn.Module in kind.__mro__:
        modules.describe_module(walker, value, kind, path)
    elif torch.Tensor in kind.__mro__:
        _tensor(walker, value, path)
    elif kind in _BARE:
        walker.put(kind.__name__)
        _BASES[kind](walker, value, path)
    elif value is sys.stdout or value is sys.stderr:
        walker.put("stream")
    elif module_of(kind).partition(".")[0] == "numpy" and numpy.describe(walker, value, kind, path):
        return
    else:
        _check_class(walker, kind, path)
        # A member of an IntEnum is an int too, but one with more to say.
        bases = (enum.Enum, *kind.__mro__) if enum.Enum in kind.__mro__ else kind.__mro__
        base = next(base for base in bases if base in _BASES)
        walker.put("object")
        walker.klass(kind, path)
        _BASES[base](walker, value, path)
        if base not in _COMPLETE:
            walker.attributes(attributes_of(walker, value, kind, base, path), path)


def _check_class(walker: Walker, kind: type, path: Path) -> None:
    """Objects of Python's library are data, or they stand for something outside."""
    for base in kind.__mro__:
        library = library_of_module(module_of(base))
        if library == PYTHON and not is_plain_data(base):
            raise walker.refuse(path, full_name(kind))
        if library == OURS:
            reach.use_library(walker, OURS, module_of(base), name_of(base), path)


def attributes_of(walker: Walker, value: Any, kind: type, base: type, path: Path) -> dict[str, Any]:
    """Attributes and slots. An object with more than that keeps something to itself."""
    slots = [
        (name, member)
        for owner in kind.__mro__
        if "__slots__" in vars(owner)
        for name, member in vars(owner).items()
        if type(member) is types.MemberDescriptorType
    ]
    managed = bool(kind.__flags__ & _MANAGED_DICT)
    own_dict = kind.__dictoffset__ != 0 and base.__dictoffset__ == 0
    own_weakrefs = kind.__weakrefoffset__ > 0 and base.__weakrefoffset__ == 0
    pointers = (own_dict and not managed) + own_weakrefs + len(slots)
    if kind.__basicsize__ > base.__basicsize__ + pointers * _POINTER:
        raise walker.refuse(path, full_name(kind))
    found: dict[str, Any] = {}
    if kind.__dictoffset__ != 0:
        attributes = object.__getattribute__(value, "__dict__")
        # Some dictionaries are their own attributes; what they hold is written already.
        found |= {} if attributes is value else attributes
    for name, member in slots:
        try:
            found[name] = member.__get__(value)
        except AttributeError:
            continue
    return found


def attributes_of_plain(walker: Walker, value: Any, path: Path) -> dict[str, Any] | None:
    """The attributes of an object that is nothing but them; None for other values."""
    kind = class_of(value)
    special = kind in _EXACT or kind in INLINE or primitive(value) is not None
    special |= any(base in _BASES and base is not object for base in kind.__mro__)
    special |= not _OTHER_WRITERS.isdisjoint(kind.__mro__)
    if special or module_of(kind).partition(".")[0] == "numpy":
        return None
    _check_class(walker, kind, path)
    return attributes_of(walker, value, kind, object, path)


# --- written in place -----------------------------------------------------------------------------


def _tuple(walker: Walker, value: tuple[Any, ...], path: Path) -> None:
    walker.put("tuple")
    walker.items(tuple.__iter__(value), path)


def _frozenset(walker: Walker, value: frozenset[Any], path: Path) -> None:
    walker.put("frozenset")
    walker.unordered(frozenset.__iter__(value), path)


def _slice(walker: Walker, value: slice, path: Path) -> None:
    walker.put("slice")
    walker.items((value.start, value.stop, value.step), path)


def _torch_constant(walker: Walker, value: Any, path: Path) -> None:
    del path
    walker.put(f"{type(value).__name__} {value!r}")


def _method(walker: Walker, value: types.MethodType, path: Path) -> None:
    walker.put("method")
    walker.ref(value.__func__, path)
    walker.ref(value.__self__, path / ".__self__")


def _builtin(walker: Walker, value: Any, path: Path) -> None:
    """A function in C, or a bound method of a C type."""
    owner, module = value.__self__, value.__module__
    walker.put("builtin", value.__name__)
    if module is None and type not in type(owner).__mro__:
        walker.ref(owner, path / ".__self__")
        return
    if module is None:
        module = module_of(owner)
    library = library_of_module(str(module))
    if library is None:
        raise walker.refuse(path, f"{module}.{value.__name__} is compiled code of no library")
    walker.put(str(module), value.__qualname__)
    reach.use_library(walker, library, str(module), value.__qualname__, path)


def _descriptor(walker: Walker, value: Any, path: Path) -> None:
    walker.put("descriptor", value.__name__)
    walker.klass(value.__objclass__, path)


def _alias(walker: Walker, value: Any, path: Path) -> None:
    walker.put(type(value).__name__)
    walker.ref(getattr(value, "__origin__", None), path)
    walker.ref(value.__args__, path)


def _code(walker: Walker, value: types.CodeType, path: Path) -> None:
    del path
    walker.put("code", code_digest(value))


def _reference(walker: Walker, value: weakref.ref[Any], path: Path) -> None:
    walker.put("weak")
    walker.ref(value(), path)


INLINE: dict[type, _Writer] = {
    tuple: _tuple,
    frozenset: _frozenset,
    slice: _slice,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: lambda walker, value, path: _bound_descriptor(walker, value, path),
    types.CodeType: _code,
    types.GenericAlias: _alias,
    types.UnionType: _alias,
    weakref.ref: _reference,
    **dict.fromkeys(
        (
            types.WrapperDescriptorType,
            types.MethodDescriptorType,
            types.ClassMethodDescriptorType,
            types.GetSetDescriptorType,
            types.MemberDescriptorType,
        ),
        _descriptor,
    ),
    **dict.fromkeys(
        (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
        _torch_constant,
    ),
}


def _bound_descriptor(walker: Walker, value: Any, path: Path) -> None:
    walker.put("method", value.__name__)
    walker.ref(value.__self__, path / ".__self__")


# --- by exact type --------------------------------------------------------------------------------


def _tensor(walker: Walker, value: torch.Tensor, path: Path) -> None:
    """A tensor that is no parameter, buffer or input: a constant of the graph."""
    kind = class_of(value)
    walker.put(walker.tensors.describe(value), content_digest(value, str(path)))
    if kind not in PLAIN_TENSORS:
        walker.klass(kind, path)
    walker.attributes(object.__getattribute__(value, "__dict__"), path)


def _wrapper(walker: Walker, value: Any, path: Path) -> None:
    walker.put(type(value).__name__)
    walker.ref(value.__func__, path)


def _cached_property(walker: Walker, value: Any, path: Path) -> None:
    walker.put("cached property", repr(value.attrname))
    walker.ref(value.func, path)


def _cached_function(walker: Walker, value: Any, path: Path) -> None:
    walker.put("cached function")
    walker.ref(value.__wrapped__, path)


def _field(walker: Walker, value: dataclasses.Field[Any], path: Path) -> None:
    walker.put("field", repr(value.name), str(value.init), str(value.kw_only))
    walker.ref(value.default, path)
    walker.ref(value.default_factory, path)
    walker.mapping(dict(value.metadata).items(), path)


def _proxy(walker: Walker, value: types.MappingProxyType[Any, Any], path: Path) -> None:
    walker.put("proxy")
    walker.mapping(dict(value).items(), path)


def _pattern(walker: Walker, value: re.Pattern[Any], path: Path) -> None:
    walker.put("pattern", str(value.flags))
    walker.ref(value.pattern, path)


def _reduced(walker: Walker, value: Any, path: Path) -> None:
    """Immutable types in C, whose own way to be pickled says all."""
    kind: Any = type(value)
    make, *content = kind.__reduce__(value)
    walker.put(full_name(type(value)))
    walker.ref(tuple(content) if make is type(value) else (make, *content), path)


def _array(walker: Walker, value: array.array[Any], path: Path) -> None:
    walker.put("array", value.typecode)
    walker.ref(value.tobytes(), path)


def _type_variable(walker: Walker, value: Any, path: Path) -> None:
    del path
    walker.put("type variable", repr(value.__name__))


def _handle(walker: Walker, value: RemovableHandle, path: Path) -> None:
    """Its id counts all hooks of the process; what it means is a place in a table."""
    table = value.hooks_dict_ref() or {}
    walker.put("handle", str(list(table).index(value.id)) if value.id in table else "removed")
    walker.items(table.values(), path)


def _operator(walker: Walker, value: Any, path: Path) -> None:
    name = str(vars(value).get("_qualified_op_name") or vars(value).get("_name"))
    reach.use_operators(walker, name.partition("::")[0], path)
    walker.put("operator", name)


_EXACT: dict[type, _Writer] = {
    types.FunctionType: reach.describe_function,
    classmethod: _wrapper,
    staticmethod: _wrapper,
    functools.cached_property: _cached_property,
    type(functools.lru_cache(lambda: None)): _cached_function,
    types.MappingProxyType: _proxy,
    dataclasses.Field: _field,
    re.Pattern: _pattern,
    typing.TypeVar: _type_variable,
    typing.ParamSpec: _type_variable,
    array.array: _array,
    RemovableHandle: _handle,
    OpOverload: _operator,
    OpOverloadPacket: _operator,
    **dict.fromkeys(
        (
            operator.itemgetter,
            operator.attrgetter,
            operator.methodcaller,
            type(collections.namedtuple("_", "x").x),  # type: ignore[attr-defined]
            datetime.date,
            datetime.time,
            datetime.datetime,
            datetime.timedelta,
            decimal.Decimal,
        ),
        _reduced,
    ),
}


# --- by base class: the content, before the attributes of subclasses ----------------------------


def _ordered_dict(walker: Walker, value: Any, path: Path) -> None:
    # `dict.items` knows no `move_to_end`, `OrderedDict.items` would call an overridden method.
    content = {id(key): item for key, item in dict.items(value)}
    order = collections.OrderedDict.__iter__(value)
    walker.mapping(((key, content[id(key)]) for key in order), path)


def _dict(walker: Walker, value: Any, path: Path) -> None:
    if value is sys.modules:
        raise walker.refuse(path, "sys.modules")
    walker.mapping(dict.items(value), path)


def _default_dict(walker: Walker, value: Any, path: Path) -> None:
    kind: Any = collections.defaultdict
    walker.ref(kind.default_factory.__get__(value), path / ".default_factory")
    _dict(walker, value, path)


def _deque(walker: Walker, value: Any, path: Path) -> None:
    walker.ref(collections.deque.maxlen.__get__(value), path)
    walker.items(collections.deque.__iter__(value), path)


def _partial(walker: Walker, value: Any, path: Path) -> None:
    kind: Any = functools.partial
    walker.ref(kind.func.__get__(value), path / ".func")
    walker.items(kind.args.__get__(value), path / ".args")
    walker.mapping(dict.items(kind.keywords.__get__(value)), path / ".keywords")


def _property(walker: Walker, value: Any, path: Path) -> None:
    kind: Any = property
    for name in ("fget", "fset", "fdel"):
        walker.ref(getattr(kind, name).__get__(value), path)


def _member_of_enum(walker: Walker, value: Any, path: Path) -> None:
    state = object.__getattribute__(value, "__dict__")
    walker.put(repr(state["_name_"]))
    walker.ref(state["_value_"], path)


def _logger(walker: Walker, value: Any, path: Path) -> None:
    """Logging tells about a run and changes nothing in it, unless code asks what is logged."""
    del path
    walker.put(repr(object.__getattribute__(value, "__dict__")["name"]))
    level = logging.Logger.getEffectiveLevel(value)
    walker.when_named(_ABOUT_LOGGING, lambda: walker.put(f"{level} {value.disabled}"))


def _file_path(walker: Walker, value: Any, path: Path) -> None:
    walker.put(repr(pathlib.PurePath.__str__(value)))
    if pathlib.Path in type(value).__mro__:
        walker.refuse_when_named(_DISK, path, full_name(type(value)))


def _simple(base: type, convert: Callable[[Any], Any]) -> _Writer:
    """For subclasses of Python's simple types: the value as the base class sees it."""

    def write(walker: Walker, value: Any, path: Path) -> None:
        del path
        walker.put(base.__name__, primitive(convert(value)) or "")

    return write


_BASES: dict[type, _Writer] = {
    object: lambda walker, value, path: None,
    collections.OrderedDict: _ordered_dict,
    collections.defaultdict: _default_dict,
    dict: _dict,
    list: lambda walker, value, path: walker.items(list.__iter__(value), path),
    set: lambda walker, value, path: walker.unordered(set.__iter__(value), path),
    collections.deque: _deque,
    tuple: _tuple,
    frozenset: _frozenset,
    int: _simple(int, int.__int__),
    float: _simple(float, float.__float__),
    str: _simple(str, str.__str__),
    bytes: _simple(bytes, lambda value: bytes.__add__(value, b"")),
    bytearray: _simple(bytearray, lambda value: bytes(bytearray.__getitem__(value, slice(None)))),
    functools.partial: _partial,
    property: _property,
    enum.Enum: _member_of_enum,
    logging.Logger: _logger,
    pathlib.PurePath: _file_path,
}
#: Bases that `describe` looks for before these.
_OTHER_WRITERS = frozenset({type, types.ModuleType, torch.nn.Module, torch.Tensor})
#: Their instances have no attributes.
_BARE = frozenset({dict, list, set, bytearray})
#: Bases whose writers say all there is, whatever else an instance remembers.
_COMPLETE = frozenset({enum.Enum, logging.Logger, pathlib.PurePath})
