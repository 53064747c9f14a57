"""Inference with convolutions in the host library's own form: weights packed for it once, and the
addition and activation that follow computed on the way out.

Only the plain graph gains by it: a compiler fuses activations itself and knows no packed weights.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .._capture.analyse import is_impure
from .inplace import undo_hidden_writes
from .layouts import free_views, value_of

_aten = torch.ops.aten
_CONVOLUTION = _aten.convolution.default
_SAME_ELEMENTS = (_aten.reshape.default,)


class CannotPack(Exception):
    """Why a graph has no packed form."""


class PackedGraph:
    """A graph whose convolution weights are packed at the first call, and after every change."""

    def __init__(self, source: GraphModule) -> None:
        if not torch._C._has_mkldnn:
            raise CannotPack("this build of torch has no oneDNN")
        graph = Graph()
        graph.output(graph.graph_copy(source.graph, {}))
        free_views(graph)
        undo_hidden_writes(graph)
        places = {n: i for i, n in enumerate(n for n in graph.nodes if n.op == "placeholder")}
        self._layouts: dict[int, tuple[Any, ...]] = {}
        for node in list(graph.nodes):
            if _can_pack(node) and node.args[1] in places:
                features = value_of(node.args[0])
                assert features is not None
                _, _, _, stride, padding, dilation, _, _, groups = node.args
                layout = (padding, stride, dilation, groups, list(features.shape))
                self._layouts[places[node.args[1]]] = layout
                _rewrite(graph, node)
        if not self._layouts:
            raise CannotPack("no convolution whose weights could be packed")
        graph.eliminate_dead_code(is_impure)
        self._call = GraphModule(source, graph).forward
        self._packed: dict[int, torch.Tensor] = {}
        self._versions: list[int] = []

    def __call__(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        versions = [arguments[place]._version for place in self._layouts]
        if versions != self._versions:
            self._pack(arguments)
            self._versions = versions
        given = list(arguments)
        for place, weight in self._packed.items():
            given[place] = weight
        results: list[torch.Tensor] = self._call(*given)
        return results

    def _pack(self, arguments: tuple[torch.Tensor, ...]) -> None:
        reorder = torch.ops.mkldnn._reorder_convolution_weight
        for place, layout in self._layouts.items():
            self._packed[place] = reorder(arguments[place].contiguous(), *layout)


def packed_form(base: Any) -> Any:
    """The same variant with its graph packed."""
    faster = copy.copy(base)
    faster.name = f"packed {base.name}"
    faster.plain = False
    faster.run = PackedGraph(base.graph)
    return faster


def _can_pack(node: Node) -> bool:
    if node.target is not _CONVOLUTION or node.args[6]:
        return False
    weight, features = value_of(node.args[1]), value_of(node.args[0])
    assert isinstance(node.args[1], Node)
    return (
        weight is not None
        and features is not None
        and weight.dim() == 4
        and weight.dtype == torch.float32
        and len(node.args[1].users) == 1
    )


def _rewrite(graph: Graph, convolution: Node) -> None:
    """The convolution with all that can be fused into it, in the place of the last of them."""
    features, weight, bias, stride, padding, dilation, _, _, groups = convolution.args
    shape = list(_shape(convolution))
    last, other = convolution, None
    addition = _only_user(last)
    if addition is not None and addition.target is _aten.add.Tensor and not addition.kwargs:
        other = _other_operand(addition, last)
        if other is not None:
            last = addition
    activation = _only_user(last)
    relu = activation is not None and activation.target is _aten.relu.default
    if relu:
        assert activation is not None
        last = activation
    unary = "relu" if relu else "none"
    with graph.inserting_before(last):
        common = (weight, bias, padding, stride, dilation, groups)
        if other is None:
            arguments: tuple[Any, ...] = (features, *common, unary, [], "")
            fused = graph.call_function(torch.ops.mkldnn._convolution_pointwise.default, arguments)
        else:
            flat = graph.call_function(_aten.reshape.default, (other, shape))
            arguments = (features, flat, *common, "add", 1.0, unary if relu else None, [], "")
            fused = graph.call_function(torch.ops.mkldnn._convolution_pointwise.binary, arguments)
        result = fused
        if list(_shape(last)) != shape:
            result = graph.call_function(_aten.reshape.default, (fused, list(_shape(last))))
    fused.meta["val"] = value_of(convolution)
    result.meta["val"] = value_of(last)
    last.replace_all_uses_with(result)


def _shape(node: Node) -> torch.Size:
    value = value_of(node)
    assert value is not None
    return value.shape


def _only_user(node: Node) -> Node | None:
    """The one reader of a node, looking through changes of shape."""
    while len(node.users) == 1:
        user = next(iter(node.users))
        if user.target not in _SAME_ELEMENTS:
            return user
        node = user
    return None


def _other_operand(addition: Node, mine: Node) -> Node | None:
    """What is added, if it has the same shape as the convolution's result and is known before."""
    operands = [item for item in addition.args if isinstance(item, Node)]
    if len(operands) != 2 or operands[0] is operands[1]:
        return None
    theirs = [item for item in operands if _origin(item) is not mine]
    if len(theirs) != 1 or _shape(theirs[0]) != _shape(addition):
        return None
    if _shape(mine).numel() != _shape(addition).numel():
        return None  # the convolution's result is the one that is spread
    value = value_of(theirs[0])
    return theirs[0] if value is not None and value.dtype == torch.float32 else None


def _origin(node: Node) -> Node:
    while node.target in _SAME_ELEMENTS and isinstance(node.args[0], Node):
        node = node.args[0]
    return node
