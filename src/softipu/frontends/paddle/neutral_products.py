"""Matrix products and convolutions of Paddle programs, with their gradients."""

from __future__ import annotations

import math
from typing import Any

from softipu.graph import Phase, Role

from .neutral_context import Operation, Translation, spec_of

# --- products -----------------------------------------------------------------------------------


def product(t: Translation, left: str, right: str, dtype: str) -> str:
    """[g, m, k] times [g, k, n], with a note where an operand lies the wrong way round."""
    (groups, rows, _), columns = t.shape(left), t.shape(right)[2]
    attributes: dict[str, Any] = {}
    if _lies_wrong(t, left) or _lies_wrong(t, right):
        attributes["transposed"] = True
    return t.emit("matmul", [left, right], [((groups, rows, columns), dtype)], **attributes)[0]


def _lies_wrong(t: Translation, name: str) -> bool:
    """A weight lies as the forward pass wants it, so the backward pass reads it the other way."""
    root = t.looks.root(name)
    if t.build.tensors[root].role in (Role.WEIGHT, Role.CONSTANT):
        assert t.operation is not None
        return t.operation.phase is Phase.BACKWARD
    return name in t.looks.turned


def swapped(t: Translation, name: str) -> str:
    """The last two dimensions in the other order."""
    *outer, rows, columns = t.shape(name)
    rank = len(outer)
    return t.looks.permuted(t.emit, name, (*range(rank), rank + 1, rank), (*outer, columns, rows))


def _three(t: Translation, name: str, left: bool) -> str:
    """An operand as [groups, rows, columns]; a vector is a row on the left, else a column."""
    shape = t.shape(name)
    if len(shape) == 1:
        return t.look(name, (1, 1, shape[0]) if left else (1, shape[0], 1))
    return t.look(name, (math.prod(shape[:-2]), *shape[-2:]))


def _multiplied(t: Translation, left: str, right: str, dtype: str) -> str:
    left, right = _three(t, left, True), _three(t, right, False)
    (groups, rows, inner), others = t.shape(left), t.shape(right)
    if groups != others[0]:
        if others[0] == 1:
            left = t.look(left, (1, groups * rows, inner))
        elif groups == 1:
            left = t.look(left, (others[0], rows, inner), "expand_view")
        else:
            right = t.look(right, (groups, *others[1:]), "expand_view")
    return product(t, left, right, dtype)


def matmul(t: Translation, op: Operation) -> None:
    """matmul_v2, matmul, bmm, mv, dot: either operand may be transposed."""
    item = op.made("Out")[0]
    shape, dtype = spec_of(item)
    left, right = t.first(op, "X"), t.first(op, "Y", "Vec")
    if op.attribute("trans_x", op.attribute("transpose_X", False)):
        left = swapped(t, left)
    if op.attribute("trans_y", op.attribute("transpose_Y", False)):
        right = swapped(t, right)
    made = t.look(_multiplied(t, left, right, dtype), shape)
    if op.attribute("alpha", 1.0) not in (None, 1.0):
        made = t.arithmetic("mul", [made], (shape, dtype))
    t.values[item["name"]] = made


def fully_connected(t: Translation, op: Operation) -> None:
    """`mul` and `fc`: all dimensions from some axis on are the contraction."""
    item = op.made("Out")[0]
    shape, dtype = spec_of(item)
    x, weight = t.first(op, "X", "Input"), t.first(op, "Y", "W")
    columns = t.shape(weight)[-1]
    rows = math.prod(shape) // max(1, columns)
    inner = t.elements(weight) // max(1, columns)
    left, right = t.look(x, (1, rows, inner)), t.look(weight, (1, inner, columns))
    made = t.look(product(t, left, right, dtype), shape)
    for bias in t.inputs(op, "Bias"):
        if not t.add_bias(made, bias):
            made = t.arithmetic("add", [made, bias], (shape, dtype))
    t.values[item["name"]] = made


def matmul_gradient(t: Translation, op: Operation) -> None:
    """Two products; a batch that only one operand has is part of the contraction."""
    gradient = t.first(op, "Out@GRAD")
    x, y = t.first(op, "X"), t.first(op, "Y", "Vec")
    turned_x = bool(op.attribute("trans_x", op.attribute("transpose_X", False)))
    turned_y = bool(op.attribute("trans_y", op.attribute("transpose_Y", False)))
    if len(t.shape(x)) == 1 or len(t.shape(y)) == 1:
        for slot, other in (("X@GRAD", y), ("Y@GRAD", x)):
            for item in op.made(slot):
                t.values[item["name"]] = t.arithmetic("mul", [gradient, other], spec_of(item))
        return
    for item in op.made("X@GRAD"):
        left, right = gradient, y if turned_y else swapped(t, y)
        if turned_x:
            left, right = (swapped(t, y) if turned_y else y), swapped(t, gradient)
        made = _multiplied(t, left, right, t.dtype(gradient))
        t.values[item["name"]] = t.look(made, spec_of(item)[0])
    for item in op.made("Y@GRAD"):
        t.values[item["name"]] = _right_gradient(t, item, x, gradient, turned_x, turned_y)


def _right_gradient(
    t: Translation, item: dict[str, Any], x: str, gradient: str, turned_x: bool, turned_y: bool
) -> str:
    shape, dtype = spec_of(item)
    if len(shape) == 2 and len(t.shape(x)) > 2:
        inner, columns = t.shape(x)[-1], t.shape(gradient)[-1]
        rows = t.elements(x) // max(1, inner)
        x, gradient = t.look(x, (rows, inner)), t.look(gradient, (rows, columns))
    left, right = (x if turned_x else swapped(t, x)), gradient
    if turned_y:
        left, right = swapped(t, gradient), (swapped(t, x) if turned_x else x)
    return t.look(_multiplied(t, left, right, dtype), shape)


# --- convolutions -------------------------------------------------------------------------------


def convolution(t: Translation, op: Operation) -> None:
    """conv2d, depthwise_conv2d, conv3d and the transposed ones."""
    item = op.made("Output", "Out")[0]
    x, weight = _channels_first(t, op, t.first(op, "Input")), t.first(op, "Filter")
    shape, dtype = spec_of(item)
    inputs = [x, weight, *t.inputs(op, "Bias")]
    made = t.emit(
        "convolution", inputs, [(_field_last(op, shape), dtype)], **_field(t, op, weight)
    )[0]
    t.values[item["name"]] = t.look(made, shape)


def convolution_gradient(t: Translation, op: Operation) -> None:
    x, weight = _channels_first(t, op, t.first(op, "Input")), t.first(op, "Filter")
    gradient = _channels_first(t, op, t.first(op, "Output@GRAD"))
    field = _field(t, op, weight)
    for item in op.made("Filter@GRAD"):
        t.values[item["name"]] = t.emit(
            "convolution_weight_gradient", [x, gradient], [spec_of(item)], **field
        )[0]
    for item in op.made("Input@GRAD"):
        shape, dtype = spec_of(item)
        made = t.emit(
            "convolution_input_gradient", [gradient, weight],
            [(_field_last(op, shape), dtype)], **field,
        )[0]  # fmt: skip
        t.values[item["name"]] = t.look(made, shape)


def _is_channels_last(op: Operation) -> bool:
    return op.attribute("data_format", "NCHW") in ("NHWC", "NDHWC")


def _field_last(op: Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], shape[-1], *shape[1:-1]) if _is_channels_last(op) else shape


def _channels_first(t: Translation, op: Operation, name: str) -> str:
    return t.look(name, _field_last(op, t.shape(name)))


def _field(t: Translation, op: Operation, weight: str) -> dict[str, Any]:
    kernel = tuple(t.shape(weight)[2:])
    field: dict[str, Any] = {
        "kernel": kernel,
        "stride": spread(op.attribute("strides"), len(kernel)),
        "dilation": spread(op.attribute("dilations"), len(kernel)),
        "groups": int(op.attribute("groups", 1) or 1),
    }
    if "transpose" in op.type:
        field["transposed"] = True
    return field


def spread(given: Any, count: int) -> tuple[int, ...]:
    """One number for all dimensions, or one for each."""
    values = list(given) if isinstance(given, list | tuple) else [given or 1]
    values = values or [1]
    return tuple(int(value) for value in (values * count if len(values) == 1 else values))
