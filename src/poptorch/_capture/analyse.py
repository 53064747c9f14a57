"""Facts read off a captured graph: what it writes in place, and what its tensors are called."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from softipu.errors import CaptureUnsupported

from .._context import Capture
from .._errors import failure
from .program import Program, TensorSpec

_BATCH_NORM = torch.ops.aten.native_batch_norm.default


@dataclass
class Writes:
    buffers: list[str] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)


def written_arguments(node: Node) -> list[Node]:
    """The arguments that a node changes in place."""
    if node.op != "call_function":
        return []
    if node.target is _BATCH_NORM:
        training = node.args[5]
        return [arg for arg in node.args[3:5] if isinstance(arg, Node)] if training else []
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    found: list[Node] = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value: Any = node.kwargs.get(argument.name)
        if value is None and index < len(node.args):
            value = node.args[index]
        values = value if isinstance(value, list | tuple) else [value]
        found += [item for item in values if isinstance(item, Node)]
    return found


#: A piece of memory: the node that made it and, where that made several, which of them.
Memory = tuple[Node, Any]


def memory_of(node: Node) -> Memory:
    """The memory that a node may show: its own, or that of what it is a view of or writes to.

    By the operators' schemas: the tensors of graphs from files can't tell.
    """
    while node.op == "call_function" and node.args and isinstance(node.args[0], Node):
        source = node.args[0]
        if node.target is operator.getitem:
            if not _returns_its_input(source.target):
                return source, node.args[1]
        elif not _returns_its_input(node.target):
            break
        node = source
    return node, None


def _returns_its_input(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def sharing_memory(nodes: Iterable[Node]) -> dict[Memory, list[Node]]:
    """All nodes, by the memory that they may show."""
    found: dict[Memory, list[Node]] = {}
    for node in nodes:
        found.setdefault(memory_of(node), []).append(node)
    return found


def is_impure(node: Node) -> bool:
    """Whether a node must stay although nothing reads its result."""
    if node.op in ("placeholder", "output"):
        return True
    if getattr(node.target, "namespace", "") == "poptorch":
        return True
    return bool(written_arguments(node))


def _storage(node: Node) -> int | None:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def find_writes(
    graph: GraphModule,
    parameters: list[TensorSpec],
    buffers: list[TensorSpec],
    inputs: list[TensorSpec],
) -> Writes:
    """Which buffers and inputs the graph writes, also through views; dead code goes."""
    graph.graph.eliminate_dead_code(is_impure)
    graph.recompile()
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    first_buffer, first_input = len(parameters), len(parameters) + len(buffers)
    owner = {_storage(node): index for index, node in enumerate(placeholders)}
    written = set()
    for node in graph.graph.nodes:
        for argument in written_arguments(node):
            index = owner.get(_storage(argument))
            if index is not None:
                written.add(index)
    return Writes(
        [
            buffers[i - first_buffer].name
            for i in sorted(written)
            if first_buffer <= i < first_input
        ],
        [i - first_input for i in sorted(written) if first_input <= i < first_input + len(inputs)],
    )


def refuse_lost_writes(graph: GraphModule, state: Capture) -> None:
    """Raises where the program writes to a view that is a copy here, and sees its source again."""
    sources = {copy.untyped_storage()._cdata: (source, line) for copy, source, line in state.copies}
    nodes = list(graph.graph.nodes) if sources else []
    for index, node in enumerate(nodes):
        for argument in written_arguments(node):
            found = sources.get(_storage(argument) or 0)
            if found is None:
                continue
            source, line = found
            viewed = source.untyped_storage()._cdata
            lasting = any(n.op == "placeholder" and _storage(n) == viewed for n in nodes)
            later = {_storage(read) for n in nodes[index + 1 :] for read in n.all_input_nodes}
            if lasting or viewed in later:
                raise failure(
                    CaptureUnsupported,
                    f"forward() writes (by {node.target}) to view() of a tensor of shape "
                    f"{tuple(source.shape)} whose dimensions changed places{line}.",
                    cause="Tensors on an IPU are contiguous. Such a view is a copy there, and the "
                    "write would not reach what is viewed.",
                    remedy="Write to the tensor itself, or to the result of reshape() and then "
                    "copy that back.",
                )


def annotate_outputs(program: Program, state: Capture) -> None:
    """Copies the hints that ops left on tensors to the nodes that made them."""
    by_storage: dict[int | None, Node] = {}
    for node in program.micro.graph.nodes:
        by_storage.setdefault(_storage(node), node)
    for tensor, key, value in state.notes:
        node = by_storage.get(tensor.untyped_storage()._cdata)
        if node is not None:
            node.meta["softipu"] = {**node.meta.get("softipu", {}), key: value}


def name_tensors(program: Program) -> dict[str, str]:
    """Names as PopART gives them, by which users anchor tensors, to nodes (or roles) here."""
    names: dict[str, str] = {}
    for index, _ in enumerate(program.inputs):
        names["input" if index == 0 else f"input/{index}"] = f"x{index}"
    for index, spec in enumerate(program.parameters):
        names[spec.name] = f"p{index}"
    for index, spec in enumerate(program.buffers):
        names[spec.name] = f"b{index}"
    for node in program.nodes:
        path = node.meta.get("softipu", {}).get("path")
        if path is not None and isinstance(node.meta.get("val"), torch.Tensor):
            prefix = "Gradient___" if node.meta["softipu"].get("backward") else ""
            names[f"{prefix}{path}/{node.name}:0"] = node.name
    if program.loss_node is not None:
        names["loss"] = program.loss_node
    if program.loss_scaling is not None:
        names["finalLossScale"] = "loss_scaling"
    for name in program.trained:
        names[f"Gradient___{name}"] = f"gradient:{name}"
        names[f"UpdatedVar___{name}"] = f"updated:{name}"
    return names
