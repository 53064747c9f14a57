"""Inference with weights that stay as they are: what depends on them alone is computed once.

Batch norms fold into the convolutions before them, convolution weights take the layout that the
host likes, and half-precision products may be computed in float32 and rounded. None of it changes a
result beyond rounding.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .._capture import Program, TensorSpec
from .._capture.analyse import is_impure, written_arguments
from .._capture.program import is_random
from .layouts import channels_last, free_views, value_of, writes_through_views
from .memory import DeviceMemory
from .step import placeholders_of, results_of

_aten = torch.ops.aten
_BATCH_NORM = _aten.native_batch_norm.default
_CONVOLUTION = _aten.convolution.default
_PRODUCTS = (
    _CONVOLUTION, _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default,
)  # fmt: skip


class CannotFreeze(Exception):
    """Why a program's weights can't be taken as fixed."""


@dataclass
class Frozen:
    """A program over prepared weights, and the graph that prepares them."""

    program: Program
    prepare: GraphModule
    source: DeviceMemory
    memory: DeviceMemory

    def refresh(self) -> None:
        """Prepares the weights anew after the host wrote other ones."""
        buffers = self.source.buffers[0].values()
        with torch.no_grad():
            values = self.prepare(*self.source.parameters.values(), *buffers)
        for spec, value in zip(self.program.parameters, values, strict=True):
            known = self.memory.parameters.get(spec.name)
            if known is None:
                self.memory.parameters[spec.name] = value
            else:
                known.copy_(value)


def freeze(program: Program, memory: DeviceMemory, *, widen: bool) -> Frozen:
    """The program with everything that depends on weights alone moved out of it.

    With `widen`, products of half-precision tensors are computed in float32.
    """
    if program.training or program.written_buffers or program.anchors or program.written_inputs:
        raise CannotFreeze("the program changes or shows more than its outputs")
    graph = Graph()
    known: dict[Node, Node] = {}
    output = graph.graph_copy(program.micro.graph, known)
    graph.output(output)
    root = torch.nn.Module()
    for node in graph.nodes:
        if node.op == "get_attr":
            value = getattr(program.micro, str(node.target))
            root.register_buffer(str(node.target), value)
    if writes_through_views(graph):
        raise CannotFreeze("the program writes to a tensor by way of a view")
    _fold_batch_norms(graph)
    if memory.device.type == "cpu":
        channels_last(graph)
    if widen:
        _widen_products(graph)
    free_views(graph)
    graph.eliminate_dead_code(is_impure)
    fixed = len(program.parameters) + len(program.buffers)
    frozen = _split(program, GraphModule(root, graph), fixed, memory)
    frozen.refresh()
    frozen.program.parameters = [
        TensorSpec.of(spec.name, frozen.memory.parameters[spec.name])
        for spec in frozen.program.parameters
    ]
    return frozen


def _fold_batch_norms(graph: Graph) -> None:
    for node in list(graph.nodes):
        if node.target is not _BATCH_NORM or node.args[5]:
            continue
        convolution = node.args[0]
        if (
            not isinstance(convolution, Node)
            or convolution.target is not _CONVOLUTION
            or len(convolution.users) != 1
            or convolution.args[6]
        ):
            continue
        _fold(graph, convolution, node)


def _fold(graph: Graph, convolution: Node, norm: Node) -> None:
    features, weight, bias, *rest = convolution.args
    _, gamma, beta, mean, variance, _training, _momentum, eps = norm.args
    value, filters = value_of(convolution), value_of(weight)
    if value is None or filters is None or mean is None or variance is None:
        return
    shape = [-1] + [1] * (filters.dim() - 1)
    with graph.inserting_before(convolution):
        call = graph.call_function
        wide: dict[str, Any] = {"dtype": torch.float32}
        scale = call(_aten.rsqrt.default, (call(_aten.add.Scalar, (variance, eps)),))
        if gamma is not None:
            scale = call(_aten.mul.Tensor, (scale, gamma))
        shift = call(_aten.mul.Tensor, (call(_aten.neg.default, (mean,)), scale))
        if bias is not None:
            shift = call(_aten.add.Tensor, (shift, call(_aten.mul.Tensor, (bias, scale))))
        if beta is not None:
            shift = call(_aten.add.Tensor, (shift, beta))
        wide_filters = call(_aten._to_copy.default, (weight,), wide)
        scaled = call(_aten.mul.Tensor, (wide_filters, call(_aten.reshape.default, (scale, shape))))
        kind: dict[str, Any] = {"dtype": value.dtype}
        new_weight = call(_aten._to_copy.default, (scaled,), kind)
        new_weight.meta["val"] = filters
        new_bias = call(_aten._to_copy.default, (shift,), kind)
        new_bias.meta["val"] = value.new_empty(filters.shape[0])
    convolution.args = (features, new_weight, new_bias, *rest)
    for user in list(norm.users):
        if user.target is operator.getitem and user.args[1] == 0:
            user.replace_all_uses_with(convolution)
            graph.erase_node(user)


def _widen_products(graph: Graph) -> None:
    for node in list(graph.nodes):
        value = value_of(node)
        if node.target not in _PRODUCTS or value is None or value.dtype != torch.float16:
            continue
        with graph.inserting_before(node):
            node.args = tuple(_wide(graph, argument) for argument in node.args)
        with graph.inserting_after(node):
            rounded = graph.call_function(_aten._to_copy.default, (node,), {"dtype": torch.float16})
        rounded.meta.update(node.meta)
        node.meta["val"] = value.to(torch.float32)
        node.replace_all_uses_with(rounded)
        rounded.args = (node,)


def _wide(graph: Graph, argument: Any) -> Any:
    value = value_of(argument)
    if value is None or value.dtype != torch.float16:
        return argument
    wide = graph.call_function(_aten._to_copy.default, (argument,), {"dtype": torch.float32})
    wide.meta["val"] = value.to(torch.float32)
    return wide


def _split(program: Program, whole: GraphModule, fixed: int, memory: DeviceMemory) -> Frozen:
    """Two graphs: from weights to prepared weights, and from those and inputs to outputs."""
    placeholders = placeholders_of(whole)
    steady = _depends_only_on(placeholders[:fixed], whole.graph.nodes)
    first, second = Graph(), Graph()
    in_first: dict[Node, Node] = {}
    for node in whole.graph.nodes:
        if node in steady:
            in_first[node] = first.node_copy(node, lambda old: in_first[old])
    handed = [
        node
        for node in whole.graph.nodes
        if node in steady and any(user not in steady for user in node.users)
    ]
    in_second: dict[Node, Node] = {}
    for index, node in enumerate(handed):
        in_second[node] = second.placeholder(f"p{index}")
        in_second[node].meta.update(node.meta)
    for index, node in enumerate(placeholders[fixed:]):
        in_second[node] = second.placeholder(f"x{index}")
        in_second[node].meta.update(node.meta)
    for node in whole.graph.nodes:
        if node not in steady and node.op not in ("placeholder", "output"):
            in_second[node] = second.node_copy(node, lambda old: in_second[old])
            in_second[node].meta["forward"] = True
    second.output([in_second[node] for node in results_of(whole)])
    first.output([in_first[node] for node in handed])
    main = replace(
        program,
        micro=GraphModule(whole, second),
        parameters=[TensorSpec(f"prepared_{i}", (), torch.float32) for i in range(len(handed))],
        buffers=[],
    )
    ready = DeviceMemory(memory.device, buffers=[{}], random=memory.random)
    return Frozen(main, GraphModule(whole, first), memory, ready)


def _depends_only_on(fixed: Iterable[Node], nodes: Iterable[Node]) -> set[Node]:
    steady = set(fixed)
    nodes = list(nodes)
    written = {item for node in nodes for item in written_arguments(node)}
    for node in nodes:
        if node.op == "get_attr":
            steady.add(node)
        if node.op != "call_function" or is_random(node) or is_impure(node) or node in written:
            continue
        inputs = node.all_input_nodes
        if inputs and all(item in steady for item in inputs):
            steady.add(node)
    return steady
