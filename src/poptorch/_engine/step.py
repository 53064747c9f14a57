"""Joins the graphs of a program: one micro-batch followed by the update is one step."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .._capture import Program
from .tidy import tidy


def placeholders_of(graph: GraphModule) -> list[Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def results_of(graph: GraphModule) -> list[Any]:
    output = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    return list(output.args[0])


def inline(
    target: Graph, source: GraphModule, values: list[Any], root: torch.nn.Module
) -> list[Any]:
    """Copies `source` to the end of `target` with its placeholders bound; returns its outputs."""
    known: dict[Node, Any] = dict(zip(placeholders_of(source), values, strict=True))
    for node in source.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        copied = target.node_copy(node, lambda old: known[old])
        if node.op == "get_attr":
            name = f"constant_{len(root._buffers)}"
            root.register_buffer(name, getattr(source, str(node.target)))
            copied.target = name
        known[node] = copied
    return [known[item] if isinstance(item, Node) else item for item in results_of(source)]


def build_step(program: Program, micro: GraphModule, *, gradients_out: bool = False) -> GraphModule:
    """A graph of the whole step: parameters, buffers, inputs, [loss scaling], state, hypers in;
    outputs, [gradients] and anchors out; parameters, buffers and state changed in place."""
    root = torch.nn.Module()
    graph = Graph()

    def inputs(names: list[str], like: list[Node]) -> list[Node]:
        nodes = [graph.placeholder(name) for name in names]
        for node, source in zip(nodes, like, strict=True):
            node.meta.update(source.meta)
        return nodes

    old = placeholders_of(micro)
    taken = inputs([str(node.target) for node in old], old)
    count = len(program.trained)
    extra: list[Node] = []
    if program.update is not None:
        like = placeholders_of(program.update)[2 * count :]
        names = [f"s{i}" for i in range(len(program.state))]
        names += [f"h{i}" for i in range(len(program.hypers))]
        extra = inputs(names, like)
    results = inline(graph, micro, list(taken), root)
    first = len(program.outputs)
    gradients = results[first : first + count]
    if program.update is not None:
        index = {spec.name: i for i, spec in enumerate(program.parameters)}
        trained = [taken[index[name]] for name in program.trained]
        inline(graph, program.update, [*trained, *gradients, *extra], root)
    kept = results if gradients_out else results[:first] + results[first + count :]
    graph.output(kept)
    tidy(graph)
    return GraphModule(root, graph)
