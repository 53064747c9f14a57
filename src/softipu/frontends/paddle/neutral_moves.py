"""Operations of Paddle that move data or only look at it in another way."""

from __future__ import annotations

import math

from .neutral_context import Handler, Operation, Translation, spec_of

#: How variables are called that say which channel goes where for a group norm. Only Paddle's kernel
#: needs the move: an IPU reads the channels where they are.
CHANNEL_ORDER = "@IPU_GROUPS"


def same(t: Translation, op: Operation) -> None:
    """No operation at all; the gradient of one is none either."""
    for item, name in zip(op.made("Out", "X@GRAD"), t.inputs(op, "X", "Out@GRAD"), strict=False):
        t.values[item["name"]] = name


def view(t: Translation, op: Operation) -> None:
    """Reshapes and their gradients."""
    for item in op.made("Out", "X@GRAD"):
        source = t.first(op, "Out@GRAD") if op.has("Out@GRAD") else t.first(op, "X")
        t.values[item["name"]] = t.look(source, spec_of(item)[0])


def permute(t: Translation, op: Operation) -> None:
    """Another order of dimensions: free here, paid for where the data have to be in that order."""
    backward = op.has("Out@GRAD")
    name = t.first(op, "Out@GRAD" if backward else "X")
    item = op.made("X@GRAD" if backward else "Out")[0]
    order = tuple(int(axis) for axis in op.attribute("axis", ()))
    if backward:
        order = tuple(order.index(axis) for axis in range(len(order)))
    t.values[item["name"]] = t.looks.permuted(t.emit, name, order, spec_of(item)[0])


def part(t: Translation, op: Operation) -> None:
    """Slices and splits: one look or several."""
    name = t.first(op, "X", "Input")
    for item in op.made("Out"):
        shape, lacking = spec_of(item)[0], _lacking(op)
        if t.elements(name) == math.prod(shape):
            t.values[item["name"]] = t.look(name, shape)
        else:
            t.values[item["name"]] = t.looks.view(t.emit, name, shape, "slice_view", **lacking)


def _lacking(op: Operation) -> dict[str, int]:
    """The dimension of which one entry is selected, or put back."""
    gone = op.attribute("decrease_axis") or []
    return {"axis": int(gone[0])} if len(gone) == 1 else {}


def part_gradient(t: Translation, op: Operation) -> None:
    """A part put back between zeros."""
    item = op.made("X@GRAD", "Input@GRAD")[0]
    made = t.emit("copy", t.inputs(op, "Out@GRAD"), [spec_of(item)], **_lacking(op))
    t.values[item["name"]] = made[0]


def expand(t: Translation, op: Operation) -> None:
    item = op.made("Out")[0]
    name, shape = t.first(op, "X"), spec_of(item)[0]
    same_size = t.elements(name) == math.prod(shape)
    t.values[item["name"]] = t.look(name, shape, "view" if same_size else "expand_view")


def expand_gradient(t: Translation, op: Operation) -> None:
    item = op.made("X@GRAD")[0]
    t.values[item["name"]] = t.summed_to(t.first(op, "Out@GRAD"), spec_of(item)[0])


def concat(t: Translation, op: Operation) -> None:
    inputs, item = t.inputs(op, "X"), op.made("Out", "Y")[0]
    spec = spec_of(item)
    if len(inputs) == 1:
        t.values[item["name"]] = t.look(inputs[0], spec[0])
        return
    axis = int(op.attribute("axis", 0)) % max(len(spec[0]), 1)
    t.values[item["name"]] = t.emit("concat", inputs, [spec], axis=axis)[0]


def concat_gradient(t: Translation, op: Operation) -> None:
    """Each part is a look at the whole."""
    name = t.first(op, "Out@GRAD", "Y@GRAD")
    for item in op.made("X@GRAD"):
        t.values[item["name"]] = t.look(name, spec_of(item)[0], "slice_view")


def split_gradient(t: Translation, op: Operation) -> None:
    inputs, item = t.inputs(op, "Out@GRAD"), op.made("X@GRAD")[0]
    t.values[item["name"]] = t.emit("concat", inputs, [spec_of(item)], axis=0)[0]


def copy(t: Translation, op: Operation) -> None:
    """Padding, tiling, rolling …: elements that end up elsewhere."""
    item = op.made("Out", "X@GRAD", "Y")[0]
    slot = "Out@GRAD" if op.has("Out@GRAD") else "X"
    t.values[item["name"]] = t.emit("copy", [t.first(op, slot)], [spec_of(item)])[0]


def cast(t: Translation, op: Operation) -> None:
    item = op.made("Out")[0]
    name, (shape, dtype) = t.first(op, "X"), spec_of(item)
    if t.dtype(name) == dtype:
        t.values[item["name"]] = t.look(name, shape)
    else:
        t.values[item["name"]] = t.emit("cast", [t.look(name, shape)], [(shape, dtype)])[0]


def fill(t: Translation, op: Operation) -> None:
    for item in op.made("Out"):
        if item["name"].startswith(CHANNEL_ORDER):
            continue
        t.values[item["name"]] = t.emit("fill", [], [spec_of(item)])[0]


def random(function: str) -> Handler:
    def handler(t: Translation, op: Operation) -> None:
        item = op.made("Out")[0]
        t.values[item["name"]] = t.emit("random", [], [spec_of(item)], function=function)[0]

    return handler


def dropout(t: Translation, op: Operation) -> None:
    """A mask and a product, which an IPU draws in one go; nothing in inference."""
    x, item = t.first(op, "X"), op.made("Out")[0]
    if op.attribute("is_test", False):
        scales = op.attribute("dropout_implementation", "") == "downgrade_in_infer"
        made = t.arithmetic("mul", [x], spec_of(item)) if scales else x
        t.values[item["name"]] = made
        return
    spec = (t.shape(x), t.dtype(x))
    (mask,) = t.emit("random", [], [spec], function="bernoulli")
    t.set(op, "Mask", mask)
    t.values[item["name"]] = t.arithmetic("mul", [x, mask], spec)


def dropout_gradient(t: Translation, op: Operation) -> None:
    """The mask is drawn again from the same seed, as in PopART."""
    gradient, item = t.first(op, "Out@GRAD"), op.made("X@GRAD")[0]
    spec = (t.shape(gradient), t.dtype(gradient))
    (mask,) = t.emit("random", [], [spec], function="bernoulli")
    t.values[item["name"]] = t.arithmetic("mul", [gradient, mask], spec)


def gather(t: Translation, op: Operation) -> None:
    """Rows of a table by index: embeddings, gather, index_select."""
    item = op.made("Out")[0]
    table = t.first(op, "W", "X")
    if _orders_channels(op):
        t.values[item["name"]] = table
        return
    index = t.first(op, "Ids", "Index")
    axis = int(op.attribute("axis", op.attribute("dim", 0)) or 0) % max(len(t.shape(table)), 1)
    t.values[item["name"]] = t.emit("gather", [table, index], [spec_of(item)], axis=axis)[0]


def gather_gradient(t: Translation, op: Operation) -> None:
    item = op.made("W@GRAD", "X@GRAD")[0]
    if _orders_channels(op):
        t.values[item["name"]] = t.first(op, "Out@GRAD")
        return
    inputs = [t.first(op, "Out@GRAD"), t.first(op, "Ids", "Index")]
    t.values[item["name"]] = t.emit(
        "scatter", inputs, [spec_of(item)], axis=0, function="add"
    )[0]  # fmt: skip


def _orders_channels(op: Operation) -> bool:
    return any(name.startswith(CHANNEL_ORDER) for name in op.given("Index"))


def scatter(t: Translation, op: Operation) -> None:
    item = op.made("Out")[0]
    inputs = [t.first(op, "X"), t.first(op, "Ids", "Index"), t.first(op, "Updates")]
    function = "set" if op.attribute("overwrite", op.type == "scatter") else "add"
    t.values[item["name"]] = t.emit(
        "scatter", inputs, [spec_of(item)], axis=0, function=function
    )[0]  # fmt: skip


def one_hot(t: Translation, op: Operation) -> None:
    """A comparison with a range, as PopLibs encodes it."""
    item = op.made("Out")[0]
    t.values[item["name"]] = t.arithmetic("compare", t.inputs(op, "X"), spec_of(item))


def interpolate(t: Translation, op: Operation) -> None:
    """Nearest is a copy by known positions; linear ones are sums of such."""
    item = op.made("Out", "X@GRAD")[0]
    slot = "Out@GRAD" if op.has("Out@GRAD") else "X"
    name, spec = t.first(op, slot), spec_of(item)
    (made,) = t.emit("copy", [name], [spec])
    corners = 1 if "nearest" in op.type else 16 if "bicubic" in op.type else 4
    for _ in range(corners - 1):
        (more,) = t.emit("copy", [name], [spec])
        made = t.arithmetic("lerp", [made, more], spec)
    t.values[item["name"]] = made
