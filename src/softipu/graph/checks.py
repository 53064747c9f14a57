"""A graph held to the spec: names known, values made before they are read, every op legal."""

from __future__ import annotations

from softipu.errors import GraphMalformed

from .model import Graph, Op, Role
from .spec import fault


def check(graph: Graph) -> None:
    """Raise `GraphMalformed`, naming the op, unless the graph is legal."""
    made = {name for name, tensor in graph.tensors.items() if tensor.role is not Role.ACTIVATION}
    for tensor in graph.tensors.values():
        if any(size < 0 for size in tensor.shape):
            raise GraphMalformed(f"{graph.name}: {tensor} has a negative size")
    _unknown(graph, graph.inputs, "an input of the graph")
    for op in graph.ops:
        _check_op(graph, op, made)
        made.update(op.outputs)
    _unknown(graph, graph.outputs, "an output of the graph")
    for name in graph.outputs:
        if name not in made and name not in graph.inputs:
            raise GraphMalformed(f"{graph.name}: nothing makes the output {name!r}")
    for new, old in graph.updates:
        _unknown(graph, (new, old), "an updated value")
        if graph.tensors[old].role not in (Role.WEIGHT, Role.STATE):
            raise GraphMalformed(f"{graph.name}: {old!r} is updated, but is no weight or state")
        if graph.tensors[new].elements != graph.tensors[old].elements:
            raise GraphMalformed(f"{graph.name}: {new!r} can't replace {old!r}: other size")


def _check_op(graph: Graph, op: Op, made: set[str]) -> None:
    where = f"{graph.name}: {op.kind} {op.name!r}" + (f" ({op.path})" if op.path else "")
    _unknown(graph, (*op.inputs, *op.outputs), where)
    for name in op.inputs:
        if name not in made and name not in graph.inputs:
            raise GraphMalformed(f"{where} reads {name!r} before anything makes it")
    for name in op.outputs:
        if name in made:
            raise GraphMalformed(f"{where} makes {name!r}, which exists already")
    problem = fault(
        op,
        [graph.tensors[name] for name in op.inputs],
        [graph.tensors[name] for name in op.outputs],
    )
    if problem:
        raise GraphMalformed(f"{where}: {problem}")
    for body in op.bodies:
        check(body)


def _unknown(graph: Graph, names: tuple[str, ...], where: str) -> None:
    for name in names:
        if name not in graph.tensors:
            raise GraphMalformed(f"{where}: the graph has no tensor {name!r}")
