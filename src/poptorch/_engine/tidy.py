"""Graphs without the operators that do nothing: each costs microseconds in every step."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .._capture.analyse import memory_of, sharing_memory, written_arguments

_aten = torch.ops.aten
_VIEWS = (_aten.view.default, _aten._unsafe_view.default)
_RESHAPES = (*_VIEWS, _aten.reshape.default)
#: Scaling by one makes a copy that only matters to somebody who writes to it.
_SCALINGS = (_aten.mul.Scalar, _aten.div.Scalar)


def tidied(source: GraphModule) -> GraphModule:
    """A copy of a graph for execution only: names and places of nodes are not kept."""
    graph = Graph()
    graph.output(graph.graph_copy(source.graph, {}))
    tidy(graph)
    return GraphModule(source, graph)


def tidy(graph: Graph) -> None:
    """Removes what has no effect when a graph just runs, without autograd.

    Views become reshapes: operators may answer with other strides than they had in the capture.
    """
    written = _written(graph)
    for node in list(graph.nodes):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
            continue
        source = node.args[0]
        if node.target in _RESHAPES:
            # Not through one that is written to: it may be a copy.
            while source.target in _RESHAPES and source not in written:
                inner = source.args[0]
                if not isinstance(inner, Node) or inner in written:
                    break
                source = inner
            if source is not node.args[0]:
                node.args = (source, *node.args[1:])
                node.target = _aten.reshape.default
        if _is_idle(node, source, written):
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    # Reshapes that others looked through may have no reader left.
    for node in reversed(list(graph.nodes)):
        if node.target in _RESHAPES and not node.users:
            graph.erase_node(node)
        elif node.target in _VIEWS and node not in written:
            node.target = _aten.reshape.default


def _written(graph: Graph) -> set[Node]:
    """What is written to, and all that may share its memory."""
    sharing = sharing_memory(graph.nodes)
    targets = [target for node in graph.nodes for target in written_arguments(node)]
    return {member for target in targets for member in sharing[memory_of(target)]}


def _is_idle(node: Node, source: Node, written: set[Node]) -> bool:
    if node.target is _aten.detach.default or node.target is _aten.alias.default:
        return True
    if node.target is _aten.permute.default:
        order: Any = node.args[1]
        return list(order) == list(range(len(order)))
    before, after = source.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    if node.target in _RESHAPES:
        return before.shape == after.shape
    if node.target in _SCALINGS:
        seen = {node, source} & written
        return not seen and bool(node.args[1] == 1) and before.dtype == after.dtype
    return False
