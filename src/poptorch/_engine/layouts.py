"""Channels-last convolutions: the layout that the host's library computes fastest.

Only weights are turned around: convolutions pass the layout on to what follows. Results go back
to the caller in the usual one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from .._capture.analyse import written_arguments

_aten = torch.ops.aten
_CONVOLUTION = _aten.convolution.default
_VIEWS = (_aten.view.default, _aten._unsafe_view.default)
#: Operators with strides among their arguments mean one layout, the one they were captured with.
_BOUND_TO_STRIDES = (
    _aten.as_strided.default, _aten.as_strided_.default, _aten.as_strided_scatter.default,
    _aten.view.dtype, _aten.view_as_complex.default, _aten.view_as_real.default,
)  # fmt: skip
#: Where a convolution and its gradient have their weights, and whether they are transposed.
_PLACES: dict[Any, tuple[int, int]] = {
    _CONVOLUTION: (1, 6),
    _aten.convolution_backward.default: (2, 7),
}


def value_of(node: Any) -> torch.Tensor | None:
    """The tensor that a node had when it was captured."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def writes_through_views(graph: Graph) -> bool:
    """Whether something is written by way of a view, which a reshape that copies would lose."""
    return any(
        link.target in _VIEWS
        for node in graph.nodes
        for written in written_arguments(node)
        for link in _chain(written)
    )


def _chain(node: Node) -> Iterator[Node]:
    """A node and what it is a view of, step by step."""
    while isinstance(node.target, torch._ops.OpOverload):
        yield node
        returned = node.target._schema.returns
        source = node.args[0] if node.args else None
        if not returned or returned[0].alias_info is None or not isinstance(source, Node):
            return
        node = source


def free_views(graph: Graph) -> None:
    """Views become reshapes, which also take tensors whose strides a view can't express."""
    for node in graph.nodes:
        if node.target in _VIEWS:
            node.target = _aten.reshape.default


def has_convolutions(graph: Graph) -> bool:
    return any(node.target in _PLACES for node in graph.nodes)


def channels_last(graph: Graph) -> bool:
    """Turns the weights of all plain 2-d convolutions; False if that changes nothing."""
    if any(node.target in _BOUND_TO_STRIDES for node in graph.nodes):
        return False
    if writes_through_views(graph):
        return False
    turned: dict[Node, Node] = {}
    for node in list(graph.nodes):
        place, transposed = _PLACES.get(node.target, (0, 0))
        if not place or node.args[transposed]:
            continue
        weight = node.args[place]
        filters = value_of(weight)
        if filters is None or filters.dim() != 4:
            continue
        if weight not in turned:
            turned[weight] = weight if _is_turned(filters) else _turn(graph, weight, node)
        node.update_arg(place, turned[weight])
    if not turned:
        return False
    free_views(graph)
    output = next(node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        output.args = ([_contiguous(graph, item) for item in output.args[0]],)
    return True


def _is_turned(filters: torch.Tensor) -> bool:
    """By strides: where a dimension is 1, torch calls the usual layout channels-last as well."""
    _, channels, height, width = filters.shape
    row = width * channels
    return filters.stride() == (height * row, 1, row, channels)


def _turn(graph: Graph, weight: Node, user: Node) -> Node:
    with graph.inserting_before(user):
        turned = graph.call_function(
            _aten.clone.default, (weight,), {"memory_format": torch.channels_last}
        )
    turned.meta["val"] = value_of(weight)
    return turned


def _contiguous(graph: Graph, node: Any) -> Any:
    value = value_of(node)
    if value is None or value.dim() < 3:
        return node
    same = graph.call_function(_aten.contiguous.default, (node,))
    same.meta.update(node.meta)
    return same
