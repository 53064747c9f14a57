"""Sizes of a PIR model's open dimensions: what each of them is for one size of micro-batch.

The format writes -1 for every dimension that depends on a size of the inputs. Most operations hand
such dimensions on; the few that move them are here by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softipu.errors import EstimateNeedsBatch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sized:
    """A tensor: its shape as written, and in numbers."""

    raw: Shape
    shape: Shape
    dtype: str | None


def sizes_of(
    kind: str, raw: Shape, given: Sequence[Sized], attributes: Mapping[str, Any], batch: int
) -> Shape:
    """The shape of a result in numbers."""
    if all(size >= 0 for size in raw):
        return raw
    if not given:
        return tuple(size if size >= 0 else batch for size in raw)
    rule = _RULES.get(kind, _broadcast)
    found = rule(raw, given, attributes)
    if any(size is None or size < 0 for size in found):
        raise EstimateNeedsBatch(
            f"The operation {kind} makes a tensor of shape {list(raw)}, whose sizes don't follow "
            "from those of its inputs."
        )
    return tuple(int(size) for size in found if size is not None)


Found = list[int | None]


def _open(raw: Shape) -> Found:
    return [size if size >= 0 else None for size in raw]


def _reshaped(raw: Shape, given: Sequence[Sized], _: Mapping[str, Any]) -> Found:
    """All elements are still there: one open size follows from the others."""
    source, found = given[0], _open(raw)
    missing = [axis for axis, size in enumerate(found) if size is None]
    for axis in missing[:-1]:  # sizes that are handed on stand where they were
        if axis < len(source.raw) and source.raw[axis] < 0:
            found[axis] = source.shape[axis]
    missing = [axis for axis, size in enumerate(found) if size is None]
    if len(missing) == 1:
        others = math.prod(size for size in found if size is not None)
        found[missing[0]] = math.prod(source.shape) // max(1, others)
    return found


def _permuted(raw: Shape, given: Sequence[Sized], attributes: Mapping[str, Any]) -> Found:
    return [given[0].shape[axis] for axis in attributes["axis"]] if raw else []


def _joined(raw: Shape, given: Sequence[Sized], attributes: Mapping[str, Any]) -> Found:
    parts = [one for one in given if len(one.raw) == len(raw)]
    axis = int(attributes.get("axis", 0)) % len(raw)
    found = [size if size >= 0 else parts[0].shape[at] for at, size in enumerate(raw)]
    if raw[axis] < 0:
        found[axis] = sum(one.shape[axis] for one in parts)
    return [*found]


def _product(raw: Shape, given: Sequence[Sized], attributes: Mapping[str, Any]) -> Found:
    left, right = given[0].shape, given[1].shape
    found = _open(raw)
    if len(left) < 2 or len(right) < 2:
        return _broadcast(raw, given, attributes)
    found[-2] = left[-1] if attributes.get("trans_x") else left[-2]
    found[-1] = right[-2] if attributes.get("trans_y") else right[-1]
    for place in range(3, len(raw) + 1):
        sizes = [shape[-place] for shape in (left, right) if place <= len(shape)]
        found[-place] = max(sizes, default=1)
    return found


def _reduced(raw: Shape, given: Sequence[Sized], attributes: Mapping[str, Any]) -> Found:
    """What is left of the dimensions after some went away."""
    shape = given[0].shape
    if len(raw) == len(shape):
        return [size if size >= 0 else shape[axis] for axis, size in enumerate(raw)]
    axes = attributes.get("dim", attributes.get("axis", attributes.get("decrease_axis", [])))
    gone = {int(axis) % len(shape) for axis in (axes if isinstance(axes, list) else [axes])}
    left = [size for axis, size in enumerate(shape) if axis not in gone]
    if len(left) != len(raw):
        return _open(raw)
    return [size if size >= 0 else left[axis] for axis, size in enumerate(raw)]


def _leading(raw: Shape, given: Sequence[Sized], _: Mapping[str, Any]) -> Found:
    """Dimensions of the first operand, and others behind them."""
    shape = given[0].shape
    return [
        size if size >= 0 else (shape[axis] if axis < len(shape) else None)
        for axis, size in enumerate(raw)
    ]


def _indexed(raw: Shape, given: Sequence[Sized], attributes: Mapping[str, Any]) -> Found:
    """gather: the indices' dimensions in place of one of the table's."""
    table, index = given[0].shape, given[1].shape
    axis = int(attributes.get("axis", 0)) % max(1, len(table))
    whole = (*table[:axis], *index, *table[axis + 1 :])
    return [*whole] if len(whole) == len(raw) else _leading(raw, given, attributes)


def _broadcast(raw: Shape, given: Sequence[Sized], _: Mapping[str, Any]) -> Found:
    """An open size is that of an operand which has an open one in the same place from the end."""
    found = _open(raw)
    for axis, size in enumerate(found):
        if size is not None:
            continue
        place = len(raw) - axis
        sizes = [o.shape[-place] for o in given if place <= len(o.raw) and o.raw[-place] < 0]
        if not sizes and axis < len(given[0].raw) and given[0].raw[axis] < 0:
            sizes = [given[0].shape[axis]]
        found[axis] = max(sizes, default=None)
    return found


_RULES: Mapping[str, Callable[[Shape, Sequence[Sized], Mapping[str, Any]], Found]] = {
    **dict.fromkeys(("reshape", "flatten", "squeeze", "unsqueeze"), _reshaped),
    "transpose": _permuted,
    "concat": _joined,
    **dict.fromkeys(("matmul", "bmm"), _product),
    **dict.fromkeys(
        ("sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin", "slice",
         "logsumexp", "p_norm", "unbind"), _reduced),
    **dict.fromkeys(("embedding", "one_hot", "topk", "argsort", "layer_norm", "group_norm",
                     "pool2d", "pool3d", "conv2d", "depthwise_conv2d", "conv3d"), _leading),
    **dict.fromkeys(("gather", "index_select"), _indexed),
}  # fmt: skip
