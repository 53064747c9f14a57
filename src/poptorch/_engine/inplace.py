"""Writes in place that nobody else can see, undone: `relu_` becomes `relu`.

Autograd pays for a write to a view with copies of the whole tensor; a graph has no need for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from .._capture.analyse import sharing_memory, written_arguments


def undo_hidden_writes(graph: Graph) -> None:
    """Replaces in-place operators whose target is not read again, except through their result."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    # As it is before any change: what two writes in a row did to one memory stays one memory.
    families = {
        member: family for family in sharing_memory(graph.nodes).values() for member in family
    }
    for node in graph.nodes:
        twin = _twin(node)
        if twin is None:
            continue
        before = [member for member in families[node] if order[member] < order[node]]
        if any(member.op in ("placeholder", "get_attr") for member in before):
            continue
        if all(order[user] <= order[node] for member in before for user in member.users):
            node.target = twin


def _twin(node: Node) -> Any | None:
    """The operator that does the same to a new tensor."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    name = target._schema.name.removeprefix("aten::")
    if not name.endswith("_") or name.endswith("__"):
        return None
    if written_arguments(node) != [node.args[0]]:
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    return getattr(packet, target._overloadname, None)
