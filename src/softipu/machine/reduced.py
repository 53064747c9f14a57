"""Which gradients a program already sums over replicas itself, so that the update need not."""

from __future__ import annotations

from collections.abc import Sequence

from softipu.graph import Graph, Phase, Role

#: What they give is the sum of all replicas, or all replicas' parts of it.
_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
#: What they make differs between replicas, whatever they read.
_OWN = ("random", "host")


def to_reduce(graph: Graph, roots: dict[str, str], names: Sequence[str]) -> list[str]:
    """Those gradients of `names` that reach a weight before any collective has summed them."""
    if not any(op.kind in _COLLECTIVES for op in graph.ops):
        return list(names)
    summed, unsummed = _summed(graph), {roots[name] for name in _reaching_weights(graph)}
    return [name for name in names if name not in summed and name in unsummed]


def _summed(graph: Graph) -> set[str]:
    """Results of collectives, and what is made of them and of what all replicas share anyway."""
    shared = {
        name for name, tensor in graph.tensors.items()
        if tensor.role in (Role.WEIGHT, Role.STATE, Role.CONSTANT)
    }  # fmt: skip
    found: set[str] = set()
    for op in graph.ops:
        if op.kind in _COLLECTIVES:
            found.update(op.outputs)
        elif op.kind not in _OWN and all(n in shared or n in found for n in op.inputs):
            made = found if any(name in found for name in op.inputs) else shared
            made.update(op.outputs)
    return found


def _reaching_weights(graph: Graph) -> set[str]:
    """What has a way through the update to its end, which is a new weight or state, without a
    collective."""
    updating = [op for op in graph.ops if op.phase is Phase.UPDATE]
    read = {name for op in updating for name in op.inputs}
    found: set[str] = set()
    for op in reversed(updating):
        ends = any(name in found or name not in read for name in op.outputs)
        if ends and op.kind not in _COLLECTIVES:
            found.update(op.inputs)
    return found
