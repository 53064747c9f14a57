"""Functions, classes and modules in a fingerprint: what of the user's code a model can reach.

Reaching is decided by names: a method counts if its name occurs in code that counts. That is more
than a run would reach, never less, except through what `_fingerprint_origin` refuses.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from enum import Enum
from pathlib import Path as File
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from ._fingerprint_code import Import, References, code_digest, primitive, references
from ._fingerprint_origin import (
    PYTHON,
    full_name,
    library_of_file,
    library_of_function,
    library_of_module,
    module_of,
    name_of,
    reaches_computed_names,
    refusal,
    refused_parts,
)
from ._fingerprint_torch import is_known_operator_library

if TYPE_CHECKING:
    from ._fingerprint_walk import Path, Walker

#: Members that only run when a class is made or called.
CONSTRUCTION = frozenset(
    {"__class_getitem__", "__init__", "__init_subclass__", "__new__", "__post_init__"}
    | {"__set_name__"}
)
#: Members that Python generates, or that say nothing about what instances do.
_IGNORED = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"}
    | {"__annotate__", "__annotate_func__", "__annotations_cache__", "__firstlineno__"}
    | {"__static_attributes__", "__abstractmethods__", "_abc_impl", "__orig_bases__"}
    | {"__parameters__", "__slots__", "_backward_cls"}
)
#: Of the many methods of torch.nn.Module, those that calling a module runs.
_RUN_BY_CALL = frozenset({"forward", "_call_impl", "_slow_forward", "_wrapped_call_impl"})
#: Members that Python makes for slots, and those that classes written in C consist of.
_SLOTS = (GetSetDescriptorType, MemberDescriptorType)
_IN_C = (
    *_SLOTS,
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
_COMPILED = (".so", ".pyd", ".dylib")
_ABSENT = object()


# --- functions ------------------------------------------------------------------------------------


def describe_function(walker: Walker, function: FunctionType, path: Path) -> None:
    library = library_of_function(function)
    if "_torchdynamo_orig_callable" in function.__dict__:
        raise walker.refuse(path, "made by torch.compile or a function like it")
    if library is None:
        _describe_users_code(walker, function, path)
    else:
        module, name = str(function.__module__), function.__qualname__
        if library_of_module(module) == library and located(module, name) is function:
            use_library(walker, library, module, name, path)
            walker.put("library function", module, name)
            return
        # A wrapper, say of a decorator: known code around something that may be the user's, under
        # the name of what it wraps.
        module, name = str(function.__globals__.get("__name__")), function.__code__.co_name
        use_library(walker, library, module, name, path)
        walker.put("library code", module, name, str(function.__code__.co_firstlineno))
    walker.ref(function.__defaults__, path / " defaults")
    walker.attributes(function.__kwdefaults__ or {}, path)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        _describe_cell(walker, name, cell, path / f" -> {name}")
    walker.attributes(function.__dict__, path)


def _describe_cell(walker: Walker, name: str, cell: Any, path: Path) -> None:
    try:
        value = cell.cell_contents
    except ValueError:
        walker.put("empty")
        return
    if name == "__class__" and isinstance(value, type):
        walker.klass(value, path)  # what `super()` needs: the class is not called
    else:
        walker.ref(value, path)


def _describe_users_code(walker: Walker, function: FunctionType, path: Path) -> None:
    found = references(function.__code__)
    walker.put("function", code_digest(function.__code__))
    walker.names |= found.names
    walker.computed_names |= found.computed
    walker.rebuilds |= found.rebuilds
    for root, chain in found.uses:
        _describe_use(walker, function, root, chain, path)
    for statement in found.imports:
        _describe_import(walker, function, statement, found, path)


def _describe_use(
    walker: Walker, function: FunctionType, root: str, chain: tuple[str, ...], path: Path
) -> None:
    """A global that code reads; of modules only the member that it reads off them."""
    value = function.__globals__.get(root, _ABSENT)
    if value is _ABSENT:
        value = getattr(function, "__builtins__", {}).get(root, _ABSENT)
    label = root
    for name in chain:
        if not is_module(value):
            break
        label += f".{name}"
        if value is torch.ops:
            use_operators(walker, name, path)
            walker.put("use", label)
            return
        value = _member(walker, value, name, path)
    walker.put("use", label)
    if value is _ABSENT:
        walker.put("absent")
    elif value is not getattr or label != "getattr":  # of `getattr` itself the code knows enough
        walker.ref(value, path / f" -> {label}")


def _member(walker: Walker, module: ModuleType, name: str, path: Path) -> Any:
    members = vars(module)
    library = library_of_module(members.get("__name__"))
    if library is not None:
        walker.library(library, members["__name__"])
    if name in members:
        return members[name]
    submodule = sys.modules.get(f"{members.get('__name__')}.{name}", _ABSENT)
    if submodule is _ABSENT and library is not None:
        # Perhaps a part that the library loads when it is first used.
        use_library(walker, library, members["__name__"], f"{name}.*", path)
    elif submodule is _ABSENT and "__getattr__" in members:
        raise walker.refuse(path, f"{members.get('__name__')}.{name} is made by a __getattr__")
    return submodule


def _describe_import(
    walker: Walker, function: FunctionType, statement: Import, found: References, path: Path
) -> None:
    name = statement.name
    if statement.level:
        package = str(function.__globals__.get("__package__") or "")
        name = importlib.util.resolve_name("." * statement.level + name, package)
    walker.put("import", name)
    module: Any = sys.modules.get(name)
    if not is_module(module):
        _describe_unloaded(walker, name, path)
    elif statement.members is not None:
        for member in statement.members:
            value = _member(walker, module, member, path)
            walker.put(member)
            if value is _ABSENT:
                walker.put("absent")
            else:
                walker.ref(value, path / f" -> {name}.{member}")
    elif library_of_module(name) is None:
        walker.ref(module, path / f" -> {name}")
        walker.ref(sys.modules[name.partition(".")[0]], path / f" -> {name.partition('.')[0]}")
    else:
        _refuse_parts(walker, name, found.names, path)
        for member in sorted(found.names & vars(module).keys()):
            walker.ref(_member(walker, module, member, path), path / f" -> {name}.{member}")


def _refuse_parts(walker: Walker, module: str, names: set[str], path: Path) -> None:
    """Refuses the parts of a library that are named, though they may not be loaded yet."""
    for part in refused_parts(module):
        if part in names:
            raise walker.refuse(path, f"may use {module}.{part}")


def _describe_unloaded(walker: Walker, name: str, path: Path) -> None:
    """A module that code imports when it runs. Only a library's is known before."""
    package = name.partition(".")[0]
    library = library_of_module(package)
    if package not in sys.modules:
        spec = importlib.util.find_spec(package)
        origin = (spec.origin if spec is not None else None) or ""
        library = PYTHON if origin in ("built-in", "frozen") else library_of_file(origin)
    if library is None:
        raise walker.refuse(path, f"imports {name}, which is not loaded yet")
    use_library(walker, library, name, "*", path)


# --- libraries ------------------------------------------------------------------------------------


def use_library(walker: Walker, library: str, module: str, name: str, path: Path) -> None:
    """Code of a library is reached: by its version, unless it must not be."""
    reason = refusal(library, module, name)
    if reason is not None:
        raise walker.refuse(path, reason)
    if reaches_computed_names(module, name):
        walker.computed_names = True
    if (module, name) == ("dataclasses", "replace"):
        walker.rebuilds = True
    walker.library(library, module if module in sys.modules else None)


def use_operators(walker: Walker, namespace: str, path: Path) -> None:
    if not is_known_operator_library(namespace):
        raise walker.refuse(path, f"torch.ops.{namespace} is not part of torch")
    walker.library("torch")


def located(module: str, name: str) -> Any:
    """What is found under a qualified name in a loaded module; None if nothing is."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        members = getattr(value, "__dict__", None)
        value = members.get(part) if members is not None else None
        if type(value) in (classmethod, staticmethod):
            value = value.__func__
    return value


def is_replaced(function: FunctionType) -> bool:
    """Whether a function found in a library is, or wraps, one of the user's."""
    wrapped = function.__dict__.get("__wrapped__")
    if type(wrapped) is FunctionType and library_of_function(wrapped) is None:
        return True
    return library_of_function(function) is None


# --- modules --------------------------------------------------------------------------------------


def is_module(value: Any) -> bool:
    return ModuleType in type(value).__mro__


def describe_module(walker: Walker, module: ModuleType, path: Path) -> None:
    """A module that is passed around as a value; members count by name."""
    members = vars(module)
    name = str(members.get("__name__"))
    if type(module) is type(torch.ops.aten):
        use_operators(walker, name.rpartition(".")[2], path)
        walker.put("operators", name)
        return
    library = library_of_module(name)
    walker.put("module", name)
    if library is not None:
        walker.library(library, name)
        walker.space(f"in {name}", dict(members), path, open=False)
        for part in refused_parts(name):
            walker.refuse_when_named(frozenset({part}), path, f"the module {name}")
        return
    if "__getattr__" in members:
        raise walker.refuse(path, f"the module {name} makes members in a __getattr__")
    file = members.get("__file__")
    if isinstance(file, str) and File(file).is_file():
        walker.put(hashlib.sha256(File(file).read_bytes()).hexdigest())
    own = {key: value for key, value in members.items() if not is_special(key)}
    walker.space(f"in {name}", own, path)


# --- classes --------------------------------------------------------------------------------------


def describe_class(walker: Walker, kind: type, path: Path) -> None:
    module, name = module_of(kind), name_of(kind)
    library = library_of_module(module)
    walker.put("class", repr(module), repr(name))
    if library is not None:
        walker.library(library, module if module in sys.modules else None)
        if located(module, name) is kind:
            _describe_library_class(walker, kind, library, path)
            return
    elif str(getattr(sys.modules.get(module), "__file__", "")).endswith(_COMPILED):
        raise walker.refuse(path, f"{full_name(kind)} is compiled code of no installed library")
    if type(kind) is not type:
        walker.klass(type(kind), path / " metaclass")
    if type in kind.__mro__:
        walker.rebuilds = True  # a metaclass: what its methods get is a class
    for base in kind.__bases__:
        walker.klass(base, path)
    later: dict[str, Any] = {}
    if Enum in kind.__mro__:
        _describe_enumeration(walker, kind, later, path)
    else:
        _describe_members(walker, kind, later, path, _IN_C if library is not None else _SLOTS)
    walker.space(
        f"in class {full_name(kind)}",
        later,
        path,
        always=_always_reached(kind, later),
        made_with=id(kind),
        rebuilt=torch.nn.Module not in kind.__mro__,
    )


def _describe_library_class(walker: Walker, kind: type, library: str, path: Path) -> None:
    """Known by name and version, except for what was set or replaced since."""
    if library == PYTHON:
        return
    for name, member in vars(kind).items():
        text = None if is_special(name) else primitive(member)
        functions = _functions_in(member) or []
        if text is not None:
            walker.put(name, text)
        elif any(is_replaced(function) for function in functions):
            walker.put(name)
            walker.ref(member, path / f".{name}")
    for base in kind.__bases__:
        walker.klass(base, path)


def _describe_members(
    walker: Walker, kind: type, later: dict[str, Any], path: Path, known: tuple[type, ...]
) -> None:
    for name, member in vars(kind).items():
        wrapped = member.__func__ if type(member) in (classmethod, staticmethod) else member
        if name in _IGNORED or type(wrapped) in known:
            continue
        functions = _functions_in(member)
        walker.put(repr(name))
        if functions is not None:
            # The code itself counts in any case; what it refers to only if it is reached.
            walker.put(*(code_digest(function.__code__) for function in functions))
            later[name] = member
        elif is_special(name) and name != "__dataclass_fields__":
            later[name] = member
        else:
            walker.ref(member, path / f".{name}")


def _describe_enumeration(walker: Walker, kind: type, later: dict[str, Any], path: Path) -> None:
    members = vars(kind).get("_member_map_", {})
    for name, member in members.items():
        state = object.__getattribute__(member, "__dict__")
        walker.put(repr(name))
        hidden = ("_name_", "__objclass__", "_sort_order_")
        walker.attributes({k: v for k, v in state.items() if k not in hidden}, path / f".{name}")
    for name, member in vars(kind).items():
        functions = _functions_in(member)
        if functions and name not in members:
            walker.put(repr(name), *(code_digest(function.__code__) for function in functions))
            later[name] = member


def _functions_in(member: Any) -> list[FunctionType] | None:
    """The functions that a member of a class consists of; None if it is something else."""
    kind = type(member)
    if kind is FunctionType:
        return [member]
    if kind is classmethod or kind is staticmethod:
        return _functions_in(member.__func__)
    if kind is functools.cached_property:
        return _functions_in(member.func)
    if kind is property:
        parts = [part for part in (member.fget, member.fset, member.fdel) if part is not None]
        if all(type(part) is FunctionType for part in parts):
            return parts
    return None


def _always_reached(kind: type, members: dict[str, Any]) -> frozenset[str]:
    """Members that count although no code of the user names them.

    Python calls special methods, and a library calls what it expects its subclasses to define.
    """
    found = {
        name for name in members if is_special(name) and _functions_in(members[name]) is not None
    }
    for base in kind.__mro__[1:]:
        if base is torch.nn.Module:
            found |= members.keys() & _RUN_BY_CALL
        elif library_of_module(module_of(base)) is not None:
            found |= {name for name in members if name in vars(base) and not is_special(name)}
    return frozenset(found - CONSTRUCTION)


def is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
