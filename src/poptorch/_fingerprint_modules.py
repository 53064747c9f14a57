"""Modules of torch in a fingerprint: their tables of tensors, submodules and hooks.

Parameters and buffers count by name, type and sharing, not by value; everything else a module
holds counts as any object's attributes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ._fingerprint_origin import full_name
from ._fingerprint_torch import PLAIN_TENSORS, class_of

if TYPE_CHECKING:
    from ._fingerprint_walk import Path, Walker

#: Tables of hooks, with the tables that hold a remark about some of them.
_HOOKS = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
    "_backward_hooks": (),
    "_backward_pre_hooks": (),
    "_global_forward_hooks": (
        "_global_forward_hooks_with_kwargs",
        "_global_forward_hooks_always_called",
    ),
    "_global_forward_pre_hooks": (),
    "_global_backward_hooks": (),
    "_global_backward_pre_hooks": (),
}
#: Nothing that running a module reads.
_IGNORED = frozenset(
    {"_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"}
    | {"_load_state_dict_post_hooks", "_non_persistent_buffers_set"}
)
_APART = frozenset({"_parameters", "_buffers", "_modules"})
_REMARKS = frozenset(name for names in _HOOKS.values() for name in names)
#: If one of these is overridden, parameters may have other names than their places say.
_TRAVERSAL = ("named_modules", "named_parameters", "named_buffers", "_named_members")


def describe_module(walker: Walker, module: Any, kind: type, path: Path) -> None:
    state = object.__getattribute__(module, "__dict__")
    _check_class(walker, kind, path)
    walker.put("module")
    walker.klass(kind, path)
    for name in ("_parameters", "_buffers"):
        _describe_tensors(walker, state.get(name, {}), path)
    walker.put("modules")
    for name, child in state.get("_modules", {}).items():
        walker.put(repr(name))
        walker.ref(child, path / f".{name}")
    for name, value in state.items():
        if name == "_graph" and torch.fx.GraphModule in kind.__mro__:
            # Its `forward` was generated from the graph and is a function like any other.
            walker.refuse_when_named(frozenset({"graph"}), path, full_name(kind))
        elif name in _HOOKS:
            _describe_hooks(walker, name, state, path)
        elif name not in _APART and name not in _IGNORED and name not in _REMARKS:
            walker.put(repr(name))
            walker.ref(value, path / f".{name}")


def _check_class(walker: Walker, kind: type, path: Path) -> None:
    for name in _TRAVERSAL:
        owner = next(base for base in kind.__mro__ if name in vars(base))
        if owner is not torch.nn.Module:
            raise walker.refuse(path, f"{full_name(owner)} overrides {name}")


def _describe_tensors(walker: Walker, table: Mapping[str, Any], path: Path) -> None:
    """The tensors of a table: by type where the graph takes them as inputs, else by content."""
    by_type = id(table) in walker.slots
    walker.put("tensors")
    for name, tensor in table.items():
        walker.put(repr(name))
        if tensor is None or not by_type:
            walker.ref(tensor, path / f".{name}")
        else:
            describe_type(walker, tensor, path / f".{name}")


def describe_type(walker: Walker, tensor: torch.Tensor, path: Path) -> None:
    """A tensor whose values the graph doesn't know, and which others are the same tensor."""
    walker.put(walker.tensors.describe(tensor), walker.tensors.identity(tensor))
    kind = class_of(tensor)
    if kind in PLAIN_TENSORS:
        walker.put(kind.__name__)
    else:
        walker.klass(kind, path)


def _describe_hooks(walker: Walker, name: str, tables: Mapping[str, Any], path: Path) -> None:
    """Hooks in order. Their keys count the hooks of the whole process and don't matter."""
    for number, (key, hook) in enumerate(tables[name].items()):
        remarks = [remark for remark in _HOOKS[name] if key in tables.get(remark, {})]
        walker.put(name, *remarks)
        walker.ref(hook, path / f".{name}[{number}]")


def describe_global_hooks(walker: Walker, path: Path) -> None:
    """The hooks that torch runs for every module."""
    tables = vars(torch.nn.modules.module)
    for name in _HOOKS:
        if name in tables:
            _describe_hooks(walker, name, tables, path)
    walker.put(str(tables["_global_is_full_backward_hook"]))
