"""Where data that come from no input meet samples, and what such data were made of.

Masks, zeros and repeated rows show only by what they meet that they are as large as a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from softipu.graph import Graph, Op, Tensor

from .samples import Batch, Place, Places, Shape

#: Kinds whose result has the axes of its operands.
SAME = frozenset((
    "elementwise", "cast", "normalise", "softmax", "softmax_gradient", "scan", "sort", "pool",
    "normalise_gradient", "pool_gradient", "random", "all_reduce", "all_gather", "reduce_scatter",
    "host", "unknown",
))  # fmt: skip
#: Kinds whose result has axes of the same meaning as its operands, the last ones first.
_ALIGNED = frozenset((
    "elementwise", "cast", "copy", "expand_view", "slice_view", "softmax", "concat", "scan", "sort",
    "softmax_gradient", "pool", "pool_gradient", "normalise", "normalise_gradient",
))  # fmt: skip


def stacked(old: Shape, new: Shape) -> bool:
    """Whether parts lie side by side in a dimension of its own."""
    return len(new) == len(old) + 1


def meeting(
    op: Op, inputs: list[Tensor], known: Sequence[Places], outputs: list[Tensor]
) -> Iterator[tuple[str, Place]]:
    """Operands that must have samples, with the place, as others of the op have."""
    if op.kind == "concat" and stacked(inputs[0].shape, outputs[0].shape):
        for place in frozenset().union(*known):
            yield from ((tensor.name, place) for tensor in inputs)
        return
    for tensor, places in zip(inputs, known, strict=True):
        for place in places:
            for other in inputs:
                if other is not tensor:
                    yield from _peer(op, tensor, place, other, inputs)


def _peer(
    op: Op, tensor: Tensor, place: Place, other: Tensor, inputs: list[Tensor]
) -> Iterator[tuple[str, Place]]:
    size = tensor.shape[place.axis]
    aligned = len(tensor.shape) == len(other.shape)
    if op.kind == "matmul":
        yield from _factor(tensor, place, other, inputs)
    elif op.kind == "convolution_weight_gradient":
        if place.axis == 0 and other.shape[0] == size:
            yield other.name, place
    elif op.kind == "concat":
        if aligned and place.axis != op.attributes["axis"]:
            yield other.name, place
    elif op.kind == "elementwise":
        axis = place.axis + len(other.shape) - len(tensor.shape)
        if axis >= 0 and other.shape[axis] == size:
            yield other.name, Place(axis, place.stride)
    elif op.kind in ("gather", "scatter"):
        indices = tensor is not inputs[0] and other is not inputs[0]
        by_own = op.attributes.get("grouped") or (op.kind == "gather" and indices)
        if by_own and aligned and other.shape[place.axis] == size:
            yield other.name, place
        elif op.kind == "scatter" and indices and not by_own and other is inputs[-1]:
            axis = int(op.attributes["axis"]) + place.axis  # what each index puts there
            if len(other.shape) > axis and other.shape[axis] == size:
                yield other.name, Place(axis, place.stride)
    elif (
        op.kind.startswith("normalise") and op.attributes["function"] == "batch"
        and place.axis == 1 and other.shape == tensor.shape[1:2]
    ):  # fmt: skip
        yield other.name, Place(0, place.stride)  # of each sample, side by side as channels
    elif op.kind in SAME and other.shape == tensor.shape == inputs[0].shape:
        yield other.name, place


def _factor(
    tensor: Tensor, place: Place, other: Tensor, inputs: list[Tensor]
) -> Iterator[tuple[str, Place]]:
    """Factors of a product have samples in groups or in the contraction together."""
    left, right = inputs[0], inputs[1]
    if {tensor.name, other.name} != {left.name, right.name}:
        return
    contraction = 2 if tensor is left else 1
    if place.axis == 0 and other.shape[0] == tensor.shape[0]:
        yield other.name, place
    elif place.axis == contraction:
        yield other.name, Place(3 - contraction, place.stride)


def sources(op: Op, graph: Graph, batch: Batch, place: Place) -> Iterator[tuple[str, Place]]:
    """Where samples are in what an op reads, when they are at `place` in its first result."""
    tensors = graph.tensors
    new = tensors[op.outputs[0]].shape
    if op.kind == "view":
        old = tensors[op.inputs[0]].shape
        yield op.inputs[0], batch.viewed_back(place, op, old, new)
    elif op.kind == "transpose":
        yield op.inputs[0], Place(op.attributes["order"][place.axis], place.stride)
    elif op.kind in ("slice_view", "copy") and "axis" in op.attributes:
        yield from _around(op, graph, place, new)
    elif op.kind == "scatter" and len(op.inputs) > 2:
        if tensors[op.inputs[0]].shape == new:
            yield op.inputs[0], place
    elif op.kind == "matmul":
        if place.axis != 2:
            yield op.inputs[0], place
        if place.axis != 1:
            yield op.inputs[1], place
    elif op.kind in ("convolution", "convolution_input_gradient") and place.axis == 0:
        yield op.inputs[0], place
    elif op.kind == "reduce":
        old = tensors[op.inputs[0]].shape
        kept = [a for a, size in enumerate(old) if a not in op.attributes["axes"] and size > 1]
        there = [axis for axis, size in enumerate(new) if size > 1]
        yield op.inputs[0], Place(kept[there.index(place.axis)], place.stride)
    elif op.kind in _ALIGNED:
        if op.kind == "concat" and op.attributes["axis"] == place.axis:
            return
        if op.kind == "concat" and stacked(tensors[op.inputs[0]].shape, new):
            yield from _around(op, graph, place, new)
            return
        repeats = op.kind in ("elementwise", "expand_view")
        for name in op.inputs:
            shape = tensors[name].shape
            axis = place.axis + len(shape) - len(new)
            if len(shape) != len(new) and not repeats:
                continue
            if axis >= 0 and shape[axis] == new[place.axis]:
                yield name, Place(axis, place.stride)


def _around(op: Op, graph: Graph, place: Place, new: Shape) -> Iterator[tuple[str, Place]]:
    """Of one entry of a dimension, selected or put back: that dimension has no samples."""
    gone = int(op.attributes["axis"])
    for name in op.inputs:
        shape, axis = graph.tensors[name].shape, place.axis
        if len(shape) > len(new):
            axis += axis >= gone
        elif len(shape) < len(new) and axis != gone:
            axis -= axis > gone
        if axis < len(shape) and shape[axis] == new[place.axis]:
            yield name, Place(axis, place.stride)
