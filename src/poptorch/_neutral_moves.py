"""Operators that move data or only look at it in another way: views, copies, gathers, scatters.

On an IPU a slice, a reshape or another order of dimensions is a way of addressing the same memory.
What moves is a copy in another order (`clone` of a permuted tensor) and what goes by index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from torch.fx import Node

from softipu.graph import Phase

from ._capture.norms import STRIDED
from ._neutral_context import Empty, Handler, Translation, operator_name, path_of

#: Operators that select one entry of a dimension, which is gone then, or put it back.
_OF_ONE = frozenset((
    "select", "select_copy", "select_scatter", "select_backward", "unbind", "unbind_copy",
))  # fmt: skip


def same(t: Translation, node: Node) -> Sequence[str]:
    """No operation at all."""
    return [t.read(_first(node), node)]


def view(t: Translation, node: Node) -> Sequence[str]:
    return [t.viewed(node, t.read(_first(node), node), t.spec(node)[0])]


def part(t: Translation, node: Node) -> Sequence[str | None]:
    """Slices, selections, splits: one look or several."""
    name = t.read(_first(node), node)
    return [_part(t, node, name, spec[0]) if spec else None for spec in t.specs(node)]


def _part(t: Translation, node: Node, name: str, shape: tuple[int, ...]) -> str:
    if t.build.tensors[name].elements == math.prod(shape):
        return t.viewed(node, name, shape)
    return t.viewed(node, name, shape, "slice_view", **_lacking(t, node, len(t.shape(name))))


def _lacking(t: Translation, node: Node, rank: int) -> dict[str, int]:
    """The dimension of which one entry is selected, or put back."""
    if operator_name(node) not in _OF_ONE:
        return {}
    return {"axis": int(t.argument(node, "dim", 0)) % max(rank, 1)}


def expand(t: Translation, node: Node) -> Sequence[str]:
    name, shape = t.read(_first(node), node), t.spec(node)[0]
    same_size = t.build.tensors[name].elements == math.prod(shape)
    return [t.viewed(node, name, shape, "view" if same_size else "expand_view")]


def permute(t: Translation, node: Node) -> Sequence[str]:
    """Another order of dimensions: free here, paid for where the data have to be in that order."""
    name, shape = t.read(_first(node), node), t.spec(node)[0]
    order = _order(t, node, len(t.shape(name)))
    return [t.looks.permuted(partial(t.emit, node), name, order, shape)]


def _order(t: Translation, node: Node, rank: int) -> tuple[int, ...]:
    name = operator_name(node).rstrip("_")
    if name == "permute":
        return tuple(int(axis) % rank for axis in t.argument(node, "dims"))
    order = list(range(rank))
    if name in ("t", "numpy_T", "mT"):
        order[-2:] = reversed(order[-2:])
    elif name == "movedim":
        return tuple(order)
    else:
        first = int(t.argument(node, "dim0")) % max(rank, 1)
        second = int(t.argument(node, "dim1")) % max(rank, 1)
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def clone(t: Translation, node: Node) -> Sequence[str]:
    """A copy; of a permuted look it is where the data are put in that order."""
    name, spec = t.read(_first(node), node), t.spec(node)
    if path_of(node).endswith(STRIDED):
        return [t.viewed(node, name, spec[0])]
    if name in t.looks.orders:
        root, order = t.looks.orders[name]
        return t.emit(node, "transpose", [root], [spec], order=order)
    return t.emit(node, "copy", [name], [spec])


def cast(t: Translation, node: Node) -> Sequence[str]:
    """Another element type; nothing where it stays the same."""
    name, (shape, dtype) = t.read(_first(node), node), t.spec(node)
    if t.dtype(name) == dtype and t.shape(name) == shape:
        return [name]
    if t.shape(name) != shape:
        return t.emit(node, "copy", [name], [(shape, dtype)])
    return t.emit(node, "cast", [name], [(shape, dtype)])


def assign(t: Translation, node: Node) -> Sequence[str]:
    """`copy_`: the first argument gets the values of the second, in its own shape and type."""
    shape, dtype = t.spec(node)
    source = node.args[1]
    assert isinstance(source, Node), f"{node.name} copies {source!r}"
    name = t.read(source, node)
    if t.shape(name) == shape and t.dtype(name) != dtype:
        return t.emit(node, "cast", [name], [(shape, dtype)])
    if t.shape(name) == shape and t.phase(node) is Phase.UPDATE:
        # An optimiser's result is written where it belongs at once.
        return [name]
    return t.emit(node, "copy", [name], [(shape, dtype)])


def copy(t: Translation, node: Node) -> Sequence[str]:
    """Repetition, padding, a part put back …: elements that end up elsewhere."""
    inputs, (shape, dtype) = t.inputs(node), t.spec(node)
    rank = max(len(shape), *(len(t.shape(name)) for name in inputs))
    return t.emit(node, "copy", inputs, [(shape, dtype)], **_lacking(t, node, rank))


def concat(t: Translation, node: Node) -> Sequence[str]:
    inputs = [name for name in t.inputs(node) if t.build.tensors[name].elements]
    spec = t.spec(node)
    if len(inputs) == 1 and t.shape(inputs[0]) == spec[0]:
        return [inputs[0]]
    axis = int(t.argument(node, "dim", 0)) % max(len(spec[0]), 1)
    return t.emit(node, "concat", inputs, [spec], axis=axis)


def gather(grouped: bool) -> Handler:
    """Rows by index; `grouped`: each row of the table has an index of its own."""

    def handler(t: Translation, node: Node) -> Sequence[str]:
        inputs = t.inputs(node)
        axis = int(t.argument(node, "dim", 0)) % max(len(t.shape(inputs[0])), 1)
        attributes = {"grouped": True} if grouped else {}
        return t.emit(node, "gather", inputs[:2], [t.spec(node)], axis=axis, **attributes)

    return handler


def index(t: Translation, node: Node) -> Sequence[str]:
    """`x[i, :, j]`: positions by dimension, None where all are taken."""
    where = t.argument(node, "indices")
    axis = next((i for i, item in enumerate(where) if item is not None), 0)
    return t.emit(node, "gather", t.inputs(node), [t.spec(node)], axis=axis)


def embedding_bag(t: Translation, node: Node) -> Sequence[str]:
    """Rows by index, added up by bag; and which index is in which bag."""
    table, indices = t.inputs(node)[:2]
    result, *noted = (spec for spec in t.specs(node) if spec)
    wide = (*t.shape(indices), t.shape(table)[-1]), result[1]
    rows = t.emit(node, "gather", [table, indices], [wide], axis=0)
    bags = t.emit(node, "scatter", [*rows, indices], [result], axis=0, function="add")
    return [*bags, *(name for spec in noted for name in t.emit(node, "fill", [], [spec]))]


def embedding_backward(t: Translation, node: Node) -> Sequence[str]:
    inputs = t.inputs(node)[:2]
    return t.emit(node, "scatter", inputs, [t.spec(node)], axis=0, function="add")


def grid_sampler_backward(t: Translation, node: Node) -> Sequence[str | None]:
    """Gradients go back to the pixels that were read; those of the grid are arithmetic."""
    gradient, _, grid = t.inputs(node)[:3]
    pixels, positions = t.specs(node)
    found: list[str | None] = [None, None]
    if pixels:
        (found[0],) = t.emit(
            node, "scatter", [gradient, grid], [pixels], axis=0, function="add", grouped=True
        )
    if positions:
        found[1] = t.elementwise(node, "mul", [grid, gradient], positions)
    return found


def scatter(function: str | None, grouped: bool) -> Handler:
    """Values put into, or added to, a copy of the first argument by index."""

    def handler(t: Translation, node: Node) -> Sequence[str]:
        inputs = t.inputs(node)
        chosen = function
        if chosen is None:
            adds = t.argument(node, "accumulate", False) or t.argument(node, "reduce") == "sum"
            chosen = "add" if adds else "set"
        axis = int(t.argument(node, "dim", 0)) % max(len(t.shape(inputs[0])), 1)
        attributes = {"grouped": True} if grouped else {}
        return t.emit(
            node, "scatter", inputs, [t.spec(node)], axis=axis, function=chosen, **attributes
        )

    return handler


def fill(t: Translation, node: Node) -> Sequence[str]:
    return t.emit(node, "fill", [], [t.spec(node)])


def empty(t: Translation, node: Node) -> Sequence[str | None]:
    """Nothing happens until somebody writes or reads it."""
    t.values[node] = Empty(t.spec(node))
    return []


def random(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str]:
        # Those whose numbers have their own mean, or chance, read it.
        read = t.inputs(node) if operator_name(node) in ("bernoulli", "normal") else []
        made = t.emit(node, "random", read, [t.spec(node)], function=function)
        if function == "bernoulli":
            t.drawn(made[0], function)
        return made

    return handler


def dropout(t: Translation, node: Node) -> Sequence[str | None]:
    """A mask and a product, which an IPU draws in one go."""
    x = t.inputs(node)[0]
    if t.argument(node, "train", True) is False:
        return [x, None]
    spec = t.spec(node)
    (mask,) = t.emit(node, "random", [], [spec], function="bernoulli")
    t.drawn(mask, "bernoulli")
    return [t.elementwise(node, "mul", [x, mask], spec), mask]


def interpolate(t: Translation, node: Node) -> Sequence[str]:
    """Nearest is a gather by known positions: a copy. Linear ones are sums of such."""
    x, spec = t.inputs(node)[0], t.spec(node)
    name = operator_name(node)
    if "nearest" in name:
        return t.emit(node, "copy", [x], [spec])
    corners = {"linear1d": 2, "bilinear2d": 4, "trilinear3d": 8, "bicubic2d": 16}
    count = next((n for ending, n in corners.items() if ending in name), 4)
    made = t.emit(node, "copy", [x], [spec])
    for _ in range(count - 1):
        (more,) = t.emit(node, "copy", [x], [spec])
        made = (t.elementwise(node, "lerp", [made[0], more], spec),)
    return made


def _first(node: Node) -> Node:
    found = node.args[0]
    assert isinstance(found, Node), f"the first argument of {node.name} is {found!r}"
    return found
