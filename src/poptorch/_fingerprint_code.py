"""What a code object is and what it refers to, read from its bytecode without running it.

Names are not resolved here: `_fingerprint` does that, and decides what is worth following.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

#: Ways to reach a member whose name is not written in the code.
_COMPUTED = frozenset(
    {"__dict__", "__getattr__", "__getattribute__", "attrgetter", "methodcaller"}
    | {"getattr_static", "getmembers", "getmembers_static"}
)
_COMPUTED_GLOBALS = frozenset({"dir", "vars"})

#: Operations that name a thing, and how many low bits of their argument are no part of the name.
_GLOBALS = {
    dis.opmap[name]: bits
    for name, bits in (
        ("LOAD_GLOBAL", 1 if sys.version_info >= (3, 11) else 0),
        ("LOAD_NAME", 0),
        ("LOAD_FROM_DICT_OR_GLOBALS", 0),
    )
    if name in dis.opmap
}
_ATTRIBUTES = {
    dis.opmap[name]: bits
    for name, bits in (
        ("LOAD_ATTR", 1 if sys.version_info >= (3, 12) else 0),
        ("LOAD_METHOD", 0),
        ("STORE_ATTR", 0),
        ("DELETE_ATTR", 0),
    )
    if name in dis.opmap
}
_LOCALS = frozenset(
    code
    for name, code in dis.opmap.items()
    if name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF")
)
_CALLS = frozenset(
    code for name, code in dis.opmap.items() if name in ("CALL", "CALL_FUNCTION", "PRECALL")
)
_PRECALL = dis.opmap.get("PRECALL", -1)
#: What may stand between the two sides of a comparison and calls nothing.
_HARMLESS = (
    _LOCALS
    | _ATTRIBUTES.keys()
    | {
        code
        for name, code in dis.opmap.items()
        if name in ("LOAD_CONST", "PUSH_NULL", "BUILD_TUPLE", "BUILD_LIST", "PRECALL")
    }
)
_COMPARISONS = frozenset(
    code for name, code in dis.opmap.items() if name in ("COMPARE_OP", "CONTAINS_OP", "IS_OP")
)
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap.get("CACHE", -1)


@dataclass(frozen=True)
class Import:
    """An import statement inside a function. `members` is None for a plain `import name`."""

    name: str
    level: int
    members: tuple[str, ...] | None


@dataclass
class References:
    """What code refers to, nested functions included.

    `uses` are global names, each with the attributes read off it at once: `a.b.c` is
    ("a", ("b", "c")). `names` are all names and identifiers in texts. `computed` says that members
    may be reached by names that are not among them, `rebuilds` that the class of an object may be
    called.
    """

    uses: dict[tuple[str, tuple[str, ...]], None] = field(default_factory=dict)
    imports: list[Import] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    computed: bool = False
    rebuilds: bool = False


def references(code: CodeType) -> References:
    found = References()
    _collect(code, found)
    return found


def _collect(code: CodeType, found: References) -> None:
    found.names.update(code.co_names)
    for constant in code.co_consts:
        _collect_constant(constant, found)
    if not _COMPUTED.isdisjoint(code.co_names):
        found.computed = True
    raw = code.co_code
    operations, arguments = raw[::2], raw[1::2]
    for position, name in _globals(code, operations, arguments):
        found.uses[name, tuple(_chain(code, operations, arguments, position + 1))] = None
        if name in _COMPUTED_GLOBALS:
            found.computed = True
        if name == "getattr" and not _names_a_constant(code, operations, arguments, position + 1):
            found.computed = True
        if name == "type":
            after = _after_call_of_type(operations, position + 1)
            found.rebuilds |= not _is_only_compared(code, operations, arguments, after)
    if "__class__" in code.co_names:
        for position in _places(operations, _ATTRIBUTES):
            name = _name(code, operations, arguments, position, _ATTRIBUTES)
            if name == "__class__":
                after = position + 1
                found.rebuilds |= not _is_only_compared(code, operations, arguments, after)
    if _IMPORT_NAME in operations:
        found.imports += _imports(code)


def _collect_constant(constant: Any, found: References) -> None:
    if isinstance(constant, CodeType):
        _collect(constant, found)
    elif isinstance(constant, str):
        if constant.isidentifier():
            found.names.add(constant)
    elif isinstance(constant, tuple | frozenset):
        for item in constant:
            _collect_constant(item, found)


def _argument(operations: bytes, arguments: bytes, position: int) -> int:
    """The whole argument of the operation at `position`, with the prefixes that widen it."""
    value, shift = arguments[position], 8
    while position and operations[position - 1] == _EXTENDED_ARG:
        position -= 1
        value |= arguments[position] << shift
        shift += 8
    return value


def _places(operations: bytes, wanted: Iterable[int]) -> list[int]:
    """Where any of some operations is. Searching bytes is ten times faster than `dis`."""
    found = []
    for operation in wanted:
        position = operations.find(operation) if operation < 256 else -1
        while position >= 0:
            found.append(position)
            position = operations.find(operation, position + 1)
    return sorted(found)


def _name(
    code: CodeType, operations: bytes, arguments: bytes, position: int, bits: dict[int, int]
) -> str:
    return code.co_names[_argument(operations, arguments, position) >> bits[operations[position]]]


def _globals(code: CodeType, operations: bytes, arguments: bytes) -> Iterator[tuple[int, str]]:
    """Where a global is loaded, and which."""
    for position in _places(operations, _GLOBALS):
        yield position, _name(code, operations, arguments, position, _GLOBALS)


def _following(operations: bytes, position: int) -> Iterator[int]:
    """The positions of the operations from `position` on, without prefixes and caches."""
    for place in range(position, len(operations)):
        if operations[place] not in (_EXTENDED_ARG, _CACHE):
            yield place


def _chain(code: CodeType, operations: bytes, arguments: bytes, position: int) -> Iterator[str]:
    """The attributes read one after the other from `position` on."""
    for place in _following(operations, position):
        if operations[place] not in _ATTRIBUTES:
            return
        yield _name(code, operations, arguments, place, _ATTRIBUTES)


def _names_a_constant(code: CodeType, operations: bytes, arguments: bytes, position: int) -> bool:
    """Whether `getattr` is called here as `getattr(a.b, "text")`, perhaps with a simple default."""
    places = _following(operations, position)
    if operations[next(places)] not in _LOCALS | _GLOBALS.keys():
        return False
    place = next(places)
    while operations[place] in _ATTRIBUTES:
        place = next(places)
    if operations[place] != _LOAD_CONST:
        return False
    if not isinstance(code.co_consts[_argument(operations, arguments, place)], str):
        return False
    place, given = next(places), 2
    if operations[place] == _LOAD_CONST or operations[place] in _LOCALS:
        place, given = next(places), 3
    # As many arguments as were loaded: else `getattr` is one itself, as in `map(getattr, …)`.
    return operations[place] in _CALLS and _argument(operations, arguments, place) == given


def _after_call_of_type(operations: bytes, position: int) -> int:
    """The position after `type(a.b.c)`, or -1 if something else is done with `type`."""
    places = _following(operations, position)
    if operations[next(places)] not in _LOCALS:
        return -1
    for place in places:
        if operations[place] in _CALLS:
            if operations[place] != _PRECALL:
                return place + 1
        elif operations[place] not in _ATTRIBUTES:
            return -1
    return -1


def _is_only_compared(code: CodeType, operations: bytes, arguments: bytes, position: int) -> bool:
    """Whether the class loaded before `position` is not called: compared, or an attribute read.

    Between it and the comparison there may be what it is compared with, as in
    `type(x) in (list, tuple)` or `type(x) is type(y)`.
    """
    if position < 0:
        return False
    calls_of_type = 0
    for index, place in enumerate(_following(operations, position)):
        operation = operations[place]
        if operation in _COMPARISONS or (operation in _ATTRIBUTES and index == 0):
            return True
        if operation in _GLOBALS:
            calls_of_type += _name(code, operations, arguments, place, _GLOBALS) == "type"
        elif operation in _CALLS and operation != _PRECALL:
            calls_of_type -= 1
            if calls_of_type < 0:
                return False
        elif operation not in _HARMLESS:
            return False
    return False


def _imports(code: CodeType) -> Iterator[Import]:
    """Rare enough to let `dis` do it: level and members are the two constants loaded before."""
    before: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, members = before[-2:]
            yield Import(str(instruction.argval), int(level), members)
        before.append(instruction.argval)


# --- identity -------------------------------------------------------------------------------------


def code_digest(code: CodeType) -> str:
    """Equal for code that does the same: file, line numbers and the function's name don't count."""
    parts = [
        code.co_code,
        getattr(code, "co_exceptiontable", b""),
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        code.co_consts,
    ]
    return hashlib.sha256(_constant(tuple(parts)).encode()).hexdigest()


def _constant(value: Any) -> str:
    if type(value) is tuple:
        return f"({','.join(map(_constant, value))})"
    if type(value) is frozenset:
        return f"{{{','.join(sorted(map(_constant, value)))}}}"
    if type(value) is CodeType:
        return f"code {code_digest(value)}"
    text = primitive(value)
    # What else Python may fold one day has a repr that evaluates to it, as constants must.
    return text if text is not None else f"{type(value).__name__} {value!r}"


def _bytes(value: bytes | bytearray) -> str:
    return f"b{len(value)}:{hashlib.sha256(value).hexdigest()}"


_PRIMITIVES: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "None",
    type(...): lambda _: "...",
    type(NotImplemented): lambda _: "NotImplemented",
    bool: lambda value: "True" if value else "False",
    int: lambda value: f"i{value:x}",
    float: lambda value: f"f{value!r}",
    complex: lambda value: f"c{value.real!r},{value.imag!r}",
    str: lambda value: f"s{value!r}",
    bytes: _bytes,
    range: lambda value: f"r{value.start:x},{value.stop:x},{value.step:x}",
}


def primitive(value: Any) -> str | None:
    """A text that differs for different values of Python's own simple types; None for others."""
    encode = _PRIMITIVES.get(type(value))
    return encode(value) if encode is not None else None
