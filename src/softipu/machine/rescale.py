"""The same program with another micro-batch: the axis of samples is followed through the graph.

Works where every op's place for samples is clear; where it isn't, there is no other graph.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from softipu.errors import GraphMalformed
from softipu.graph import Graph, Op, Tensor, check

#: Kinds whose result has the axes of the first operand.
_SAME = frozenset((
    "elementwise", "cast", "normalise", "softmax", "softmax_gradient", "scan", "sort", "pool",
    "normalise_gradient", "pool_gradient", "random", "all_reduce",
))  # fmt: skip
_VIEWS = frozenset(("view", "slice_view", "expand_view", "copy", "concat"))


def with_micro_batch(graph: Graph, micro_batch: int) -> Graph | None:
    """The graph for another number of samples, or None where that can't be told."""
    old = graph.schedule.micro_batch
    if micro_batch < 1 or old < 2:  # an axis of 1 looks like any other
        return None
    axes = _axes(graph)
    if not any(axis is not None for axis in axes.values()):
        return None
    tensors = {}
    for name, tensor in graph.tensors.items():
        axis = axes.get(name)
        if axis is None:
            tensors[name] = tensor
            continue
        if tensor.shape[axis] % old:
            return None
        shape = list(tensor.shape)
        shape[axis] = shape[axis] // old * micro_batch
        tensors[name] = replace(tensor, shape=tuple(shape))
    ops = tuple(_with_groups(op, graph, tensors) for op in graph.ops)
    found = replace(graph, tensors=tensors, ops=ops).with_schedule(micro_batch=micro_batch)
    try:
        check(found)
    except GraphMalformed:
        return None  # some op mixed samples in a way that this does not follow
    return found


def _with_groups(op: Op, graph: Graph, tensors: dict[str, Tensor]) -> Op:
    """Normalisation counts its groups; those of single samples become fewer too."""
    if "groups" not in op.attributes or not op.kind.startswith("normalise"):
        return op
    if op.attributes["function"] == "batch":
        return op
    before, after = graph.tensors[op.inputs[0]].elements, tensors[op.inputs[0]].elements
    groups = max(1, op.attributes["groups"] * after // max(1, before))
    return replace(op, attributes={**op.attributes, "groups": groups})


def _axes(graph: Graph) -> dict[str, int | None]:
    """The axis of each tensor that grows with the micro-batch.

    Constants have none of their own: what meets samples of the same shape has their axis, and the
    walk begins again with that known.
    """
    given: dict[str, int | None] = {}
    micro_batch = graph.schedule.micro_batch
    for name in graph.inputs:
        shape = graph.tensors[name].shape
        given[name] = 0 if shape and shape[0] and shape[0] % micro_batch == 0 else None
    made_by = {name: op for op in graph.ops for name in op.outputs}
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
    for _ in range(4):
        axes = dict(given)
        learnt = False
        for op in graph.ops:
            inputs = [graph.tensors[name] for name in op.inputs]
            for name, axis in _meeting(op, inputs, axes):
                source = _source(name, made_by)
                if source is None or source in given:
                    continue
                if shapes[source] != shapes[name]:  # a view: samples come first at its start
                    axis = 0
                if len(shapes[source]) > axis and shapes[source][axis] % micro_batch == 0:
                    given[source] = axis
                    learnt = True
            known = [axes.get(name) for name in op.inputs]
            for name in op.outputs:
                if name not in given:
                    axes[name] = _output_axis(op, inputs, known, graph.tensors[name])
        if not learnt:
            break
    return axes


def _meeting(op: Op, inputs: list[Tensor], axes: dict[str, int | None]) -> list[tuple[str, int]]:
    """Operands without samples that must have them, with the axis, as others of the op have."""
    by_index = op.kind in ("gather", "scatter") and op.attributes.get("grouped")
    if op.kind in _SAME or by_index:
        return _peers(inputs, axes)
    return _products(inputs, axes) if op.kind == "matmul" else []


def _peers(inputs: list[Tensor], axes: dict[str, int | None]) -> list[tuple[str, int]]:
    """Operands without samples that have as many axes as one with them, and as many on that."""
    known = [(t.shape, axis) for t in inputs if (axis := axes.get(t.name)) is not None]
    found = []
    for tensor in inputs:
        if axes.get(tensor.name) is not None:
            continue
        for shape, axis in known:
            if len(shape) == len(tensor.shape) and shape[axis] == tensor.shape[axis]:
                found.append((tensor.name, axis))
                break
    return found


def _products(inputs: list[Tensor], axes: dict[str, int | None]) -> list[tuple[str, int]]:
    """Operands of products without samples, where the other has them in groups or contraction."""
    left, right = inputs[0], inputs[1]
    first, second = axes.get(left.name), axes.get(right.name)
    if first is None and second in (0, 1) and right.shape[second] == left.shape[2 * second]:
        return [(left.name, 2 * second)]
    if second is None and first in (0, 2) and left.shape[first] == right.shape[first // 2]:
        return [(right.name, first // 2)]
    return []


#: Ops whose result is as large as they are told, whatever they read.
_MADE = ("expand_view", "fill", "random")
_PASSED = ("view", "copy", "transpose", "elementwise", "cast")


def _source(name: str, made_by: dict[str, Op]) -> str | None:
    """Where data without samples come from: what repeats or invents them, such as a mask."""
    while name in made_by and made_by[name].kind in _PASSED and made_by[name].inputs:
        name = made_by[name].inputs[0]
    return name if name in made_by and made_by[name].kind in _MADE else None


def _output_axis(op: Op, inputs: list[Tensor], axes: list[int | None], out: Tensor) -> int | None:
    if op.kind == "matmul":
        left, right = axes[0], axes[1]
        if left in (0, 1):
            return left
        return 0 if right == 0 else 2 if right == 2 else None
    if op.kind == "convolution_weight_gradient":
        return None
    if op.kind in ("convolution", "convolution_input_gradient"):
        return axes[0]
    if op.kind == "scatter":
        if op.attributes.get("grouped"):  # each sample has its own indices
            return axes[0] if axes[0] is not None else axes[1]
        # What is scattered into has samples of its own; the gradient of a table has none.
        return axes[0] if inputs[0].shape == out.shape else None
    if op.kind == "gather":
        return _gather(inputs, axes, out)
    if op.kind == "transpose":
        return None if axes[0] is None else tuple(op.attributes["order"]).index(axes[0])
    if op.kind == "reduce":
        return _reduced(op, inputs[0], axes[0], out)
    if op.kind == "normalise_gradient" and out.shape != inputs[0].shape:
        return None  # of scale and shift
    if op.kind == "normalise" and out.shape != inputs[0].shape:
        # Statistics of single samples have an entry for each group of each.
        own = op.attributes["function"] != "batch" and out.elements == op.attributes["groups"]
        return 0 if own and axes[0] is not None else None
    for tensor, axis in zip(inputs, axes, strict=True):
        if axis is None:
            continue
        if op.kind in _VIEWS:
            return _through_view(tensor, axis, out)
        if op.kind in _SAME and len(tensor.shape) <= len(out.shape):
            # Broadcasting aligns the last axes.
            place = axis + len(out.shape) - len(tensor.shape)
            if out.shape[place] == tensor.shape[axis]:
                return place
    return None


def _through_view(tensor: Tensor, axis: int, out: Tensor) -> int | None:
    """The axis of another shape of the same memory that holds the samples."""
    old, new = tensor.shape, out.shape
    if len(old) == 3 and new == (old[0], old[2], old[1]):  # a turned operand of a product
        return (0, 2, 1)[axis]
    if len(old) == 2 and new == (old[1], old[0]) and 1 not in old:
        return 1 - axis
    cut = len(new) == len(old) and new[:axis] + new[axis + 1 :] == old[:axis] + old[axis + 1 :]
    if cut or new[: axis + 1] == old[: axis + 1]:
        return axis
    outer, reach = prod(old[:axis]), prod(old[axis:])
    for place, size in enumerate(new):
        if size == 1:
            continue
        whole = tensor.elements == out.elements and prod(new[:place]) == outer
        # A part of the memory: the axis that reaches as far from the end.
        if whole or prod(new[place + 1 :]) < reach <= prod(new[place:]):
            return place
    return None


def _gather(inputs: list[Tensor], axes: list[int | None], out: Tensor) -> int | None:
    if axes[0] is not None:
        return axes[0]
    if axes[1] is None:
        return None
    for candidate, size in enumerate(out.shape):
        if size == inputs[1].shape[axes[1]]:
            return candidate
    return None


def _reduced(op: Op, x: Tensor, axis: int | None, out: Tensor) -> int | None:
    gone = tuple(op.attributes["axes"])
    if axis is None or axis in gone:
        return None
    if len(out.shape) == len(x.shape):
        return axis
    return axis - sum(1 for other in gone if other < axis)
