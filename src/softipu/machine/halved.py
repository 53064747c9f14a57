"""The same program with halves in the place of every float of 32 bits, bodies included."""

from __future__ import annotations

from dataclasses import replace

from softipu.errors import GraphMalformed
from softipu.graph import Graph, check


def in_half_precision(graph: Graph) -> Graph | None:
    """None where nothing would change, or some op does not take halves."""
    found = _halved(graph)
    if found == graph:
        return None
    try:
        check(found)
    except GraphMalformed:
        return None
    return found


def _halved(graph: Graph) -> Graph:
    tensors = {
        name: replace(tensor, dtype="float16") if tensor.dtype == "float32" else tensor
        for name, tensor in graph.tensors.items()
    }
    ops = tuple(
        replace(op, bodies=tuple(map(_halved, op.bodies))) if op.bodies else op for op in graph.ops
    )
    return replace(graph, tensors=tensors, ops=ops)
