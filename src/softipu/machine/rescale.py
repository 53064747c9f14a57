"""The same program with another micro-batch: samples are followed through the graph.

Shapes in which samples are, alone in an axis or merged with other dimensions, are rescaled; all
others stay. Where an op's place for samples is not clear, there is no other graph.
"""

from __future__ import annotations

from dataclasses import replace

from softipu.errors import GraphMalformed
from softipu.graph import Graph, Op, Tensor, check

from .followed import Followed
from .samples import Batch, Lost, Place, Places


def with_micro_batch(graph: Graph, micro_batch: int) -> Graph | None:
    """The graph for another number of samples, or None where that can't be told."""
    batch = Batch(graph.schedule.micro_batch)
    if micro_batch < 1 or batch.count < 2:  # an axis of 1 looks like any other
        return None
    given = {
        name: frozenset((Place(0, shape[0] // batch.count),))
        for name in graph.inputs
        if (shape := graph.tensors[name].shape) and shape[0] and shape[0] % batch.count == 0
    }
    if not given:
        return None
    try:
        found = _rescaled(Followed(graph, batch, given), micro_batch)
        found = found.with_schedule(micro_batch=micro_batch)
        check(found)
    except (Lost, GraphMalformed):
        return None  # some op mixes samples in a way that this does not follow
    return found


def _rescaled(followed: Followed, micro_batch: int) -> Graph:
    graph, old = followed.graph, followed.batch.count
    tensors = {
        name: _resized(tensor, followed.places[name], old, micro_batch)
        for name, tensor in graph.tensors.items()
    }
    ops = []
    for index, op in enumerate(graph.ops):
        inside = followed.bodies.get(index)
        if inside is not None:
            bodies = tuple(_rescaled(body, micro_batch) for body in inside)
            op = replace(op, bodies=bodies)
        ops.append(_with_groups(op, graph, tensors))
    return replace(graph, tensors=tensors, ops=tuple(ops))


def _resized(tensor: Tensor, places: Places, old: int, new: int) -> Tensor:
    shape = list(tensor.shape)
    for place in places:
        if shape[place.axis] % old:
            raise Lost
        shape[place.axis] = shape[place.axis] // old * new
    return replace(tensor, shape=tuple(shape)) if places else tensor


def _with_groups(op: Op, graph: Graph, tensors: dict[str, Tensor]) -> Op:
    """Normalisation counts its groups; those of single samples become fewer too."""
    if "groups" not in op.attributes or not op.kind.startswith("normalise"):
        return op
    old, new = graph.tensors[op.inputs[0]], tensors[op.inputs[0]]
    before, after = old.elements, new.elements
    if op.attributes["function"] == "batch":  # a group for each channel
        before, after = old.shape[1], new.shape[1]
    groups = max(1, op.attributes["groups"] * after // max(1, before))
    return replace(op, attributes={**op.attributes, "groups": groups})
