"""Dots and convolutions of HLO in the one form that the neutral graph has for each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from softipu.graph import Phase, Role

from .neutral_context import Translation, Value
from .neutral_hlo import Instruction


def dot(t: Translation, i: Instruction) -> Value:
    """Batch and contracting dimensions anywhere: as [groups, m, k] times [groups, k, n]."""
    names = [t.narrow(name) for name in i.operands]
    (left, right), backward = names, t.phase is Phase.BACKWARD
    sizes, others = t.shape(left), t.shape(right)
    batch, other_batch = i.numbers("lhs_batch_dims"), i.numbers("rhs_batch_dims")
    inner, other_inner = i.numbers("lhs_contracting_dims"), i.numbers("rhs_contracting_dims")
    rows = [axis for axis in range(len(sizes)) if axis not in (*batch, *inner)]
    columns = [axis for axis in range(len(others)) if axis not in (*other_batch, *other_inner)]
    groups = math.prod(sizes[axis] for axis in batch)
    m, k = (math.prod(sizes[axis] for axis in axes) for axes in (rows, inner))
    n = math.prod(others[axis] for axis in columns)
    left, left_turned = _operand(t, left, (batch, rows, inner), (groups, m, k), backward)
    right, right_turned = _operand(
        t, right, (other_batch, other_inner, columns), (groups, k, n), backward
    )
    attributes = {"transposed": True} if left_turned or right_turned else {}
    shape, dtype = t.result_spec(i)
    (made,) = t.op("matmul", [left, right], [((groups, m, n), dtype)], **attributes)
    return t.look(made, shape)


def _operand(
    t: Translation, name: str, axes: tuple[Sequence[int], Sequence[int], Sequence[int]],
    shape: tuple[int, int, int], backward: bool,
) -> tuple[str, bool]:  # fmt: skip
    """An operand as [groups, rows, columns], and whether it lies the other way round in memory.

    A weight lies as the forward pass wants it, so the backward pass reads it the other way."""
    order = tuple(axis for part in axes for axis in part)
    root = t.build.tensors[t.looks.root(name)]
    if root.role in (Role.WEIGHT, Role.CONSTANT):
        return t.look(name, shape, order=order), backward
    placed = t.in_order(name, order, shape)
    if placed is not None:
        return t.look(placed, shape), placed in t.looks.turned
    _, first, second = axes
    swapped = bool(first) and bool(second) and first[-1] > second[-1]
    return t.look(name, shape, order=order), (name in t.looks.turned) != swapped


def convolution(t: Translation, i: Instruction) -> Value:
    """Told apart by TensorFlow's operator where it is known, else by labels and window."""
    operands, _, out = i.attributes["dim_labels"].partition("->")
    left, _, right = operands.partition("_")
    if "BackpropFilter" in i.op_type or (not i.op_type and _makes_kernel(left, out)):
        return _weight_gradient(t, i, left, right, out)
    window = _window(i)
    backward = "BackpropInput" in i.op_type or (not i.op_type and "rhs_reversal" in window)
    x, weight = t.narrow(i.operands[0]), t.narrow(i.operands[1])
    spatial = _spatial(right)
    kernel = tuple(t.shape(weight)[right.index(axis)] for axis in spatial)
    ones = ("1",) * len(kernel)
    stride = window.get("lhs_dilate" if backward else "stride", ones)
    groups = int(i.attributes.get("feature_group_count", "1"))
    shape, dtype = t.result_spec(i)
    made = t.op(
        "convolution_input_gradient" if backward else "convolution",
        [_labelled(t, x, left, "bf"), _labelled(t, weight, right, "oi")],
        [(_sizes(shape, out, "bf"), dtype)],
        kernel=kernel, stride=_numbers(stride),
        dilation=_numbers(window.get("rhs_dilate", ones)), groups=groups,
    )[0]  # fmt: skip
    return t.look(made, shape)


def _weight_gradient(t: Translation, i: Instruction, left: str, right: str, out: str) -> Value:
    """Batch and channels have changed places: `f` of the input is its batch, `b` its channels."""
    window = _window(i)
    x, gradient = t.narrow(i.operands[0]), t.narrow(i.operands[1])
    shape, dtype = t.result_spec(i)
    kernel = tuple(shape[out.index(axis)] for axis in _spatial(out))
    ones = ("1",) * len(kernel)
    made = t.op(
        "convolution_weight_gradient",
        [_labelled(t, x, left, "fb"), _labelled(t, gradient, right, "io")],
        [(_sizes(shape, out, "fb"), dtype)],
        kernel=kernel, stride=_numbers(window.get("rhs_dilate", ones)),
        dilation=_numbers(window.get("stride", ones)),
        groups=max(
            int(i.attributes.get(name, "1")) for name in ("feature_group_count",
                                                          "batch_group_count")
        ),
    )[0]  # fmt: skip
    return t.look(made, shape)


def _makes_kernel(left: str, out: str) -> bool:
    """The result has its batch and channels where kernels have channels."""
    return out.index("b") > 0 and left.index("b") > left.index("f")


def _spatial(labels: str) -> list[str]:
    return sorted(label for label in labels if label.isdigit())


def _sizes(shape: tuple[int, ...], labels: str, first: str) -> tuple[int, ...]:
    return tuple(shape[labels.index(label)] for label in (*first, *_spatial(labels)))


def _labelled(t: Translation, name: str, labels: str, first: str) -> str:
    """A look at a tensor with batch and channels (or both channels) before the field."""
    order = tuple(labels.index(axis) for axis in (*first, *_spatial(labels)))
    return t.look(name, _sizes(t.shape(name), labels, first), order=order)


def _window(i: Instruction) -> dict[str, tuple[str, ...]]:
    text = i.attributes.get("window", "{}").strip("{}")
    pairs = (part.partition("=") for part in text.split())
    return {name: tuple(value.split("x")) for name, _, value in pairs}


def _numbers(values: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
