"""Norms, pools, softmax, losses, reductions and the rest of what layers are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from ._neutral_context import Handler, Spec, Translation, operator_name
from ._neutral_products import spread

# --- normalisation ----------------------------------------------------------------------------


def _norm(
    t: Translation, node: Node, function: str, groups: int, weights: Sequence[Any], **more: Any
) -> tuple[str, ...]:
    given = [item for item in (node.args[0], *weights) if isinstance(item, Node)]
    return t.emit(
        node, "normalise", [t.read(item, node) for item in given],
        [spec for spec in t.specs(node)[:3] if spec], function=function, groups=groups, **more,
    )  # fmt: skip


def batch_norm(t: Translation, node: Node) -> Sequence[str | None]:
    """With statistics of the batch, which then also move the running ones; or with those."""
    weights = [t.argument(node, name) for name in ("weight", "bias")]
    running = [t.argument(node, name) for name in ("running_mean", "running_var")]
    always = operator_name(node).endswith("no_training")
    training = not always and bool(t.argument(node, "training", t.argument(node, "train", True)))
    channels = t.spec(node)[0][1]
    if not training:
        (alone,) = t.emit(
            node, "normalise",
            [t.read(item, node) for item in (node.args[0], *weights, *running)
             if isinstance(item, Node)],
            [t.spec(node)], function="batch", groups=channels, training=False,
        )  # fmt: skip
        return [alone] + [None] * (len(t.specs(node)) - 1)
    made = _norm(t, node, "batch", channels, weights, training=True)
    held = [item for item in running if isinstance(item, Node)]
    if held:
        olds = [t.read(item, node) for item in held]
        specs = [(t.shape(old), t.dtype(old)) for old in olds]
        news = t.emit(node, "elementwise", [*olds, *made[1:3]], specs, function="lerp")
        for item, new in zip(held, news, strict=True):
            t.write(item, new)
    return [*made, *[None] * (len(t.specs(node)) - len(made))]


def group_norm(t: Translation, node: Node) -> Sequence[str]:
    groups = int(t.argument(node, "group")) * t.spec(node)[0][0]
    weights = [t.argument(node, name) for name in ("weight", "bias")]
    return _norm(t, node, "group", groups, weights, training=True)


def layer_norm(t: Translation, node: Node) -> Sequence[str]:
    inner = len(t.argument(node, "normalized_shape"))
    rows = math.prod(t.spec(node)[0][:-inner])
    weights = [t.argument(node, name) for name in ("weight", "bias")]
    function = "rms" if "rms" in operator_name(node) else "layer"
    return _norm(t, node, function, rows, weights, training=True)


def norm_gradient(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str | None]:
        gradient = next(item for item in node.args if isinstance(item, Node))
        shape = t.shape(t.read(gradient, node))
        if function == "batch":
            groups = shape[1]
        elif function == "group":
            groups = int(t.argument(node, "group")) * shape[0]
        else:
            groups = math.prod(shape[: -len(t.argument(node, "normalized_shape"))])
        # Running statistics are no part of it.
        skipped = {t.argument(node, name) for name in ("running_mean", "running_var", "bias")}
        inputs = [
            t.read(item, node) for item in node.args
            if isinstance(item, Node) and item not in skipped
        ]  # fmt: skip
        specs = t.specs(node)[:3]
        asked = t.argument(node, "output_mask", [True] * 3)
        wanted = [spec if want else None for spec, want in zip(specs, asked, strict=False)]
        made = iter(
            t.emit(node, "normalise_gradient", inputs, [s for s in wanted if s],
                   function=function, groups=groups)
        )  # fmt: skip
        return [next(made) if spec else None for spec in wanted]

    return handler


# --- pools, softmax, reductions ---------------------------------------------------------------


def pool(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str | None]:
        x, specs = t.inputs(node)[0], t.specs(node)
        # Positions of maxima are torch's way to find them again; an IPU compares.
        kept = [spec for spec in specs if spec][: None if _positions_are_read(node) else 1]
        window = _window(t, node, t.shape(x))
        made = t.emit(node, "pool", [x], kept, function=function, **window)
        return [*made, *[None] * (len(specs) - len(made))]

    return handler


def _positions_are_read(node: Node) -> bool:
    readers = [
        user for item in node.users for user in item.users if item.args[1:] == (1,)
    ]  # fmt: skip
    return any(not operator_name(user).endswith("_backward") for user in readers)


def pool_gradient(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str]:
        inputs = t.inputs(node)
        inputs = inputs[:2] if function == "max" else inputs[:1]
        window = _window(t, node, t.spec(node)[0], t.shape(inputs[0]))
        return t.emit(node, "pool_gradient", inputs, function=function, **window)

    return handler


def _window(
    t: Translation, node: Node, shape: tuple[int, ...], small: tuple[int, ...] | None = None
) -> dict[str, Any]:
    """Kernel and stride; those of adaptive pools follow from the two sizes."""
    kernel = t.argument(node, "kernel_size")
    if kernel is None:
        small = small or t.spec(node)[0]
        fields = 3 if "3d" in operator_name(node) else 1 if "1d" in operator_name(node) else 2
        pairs = list(zip(shape[-fields:], small[-fields:], strict=True))
        size = tuple(-(-wide // max(narrow, 1)) for wide, narrow in pairs)
        return {"kernel": size, "stride": size}
    fields = 3 if "3d" in operator_name(node) else 1 if "1d" in operator_name(node) else 2
    size = spread(kernel, fields)
    stride = t.argument(node, "stride")
    return {"kernel": size, "stride": spread(stride, fields) if stride else size}


def softmax(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str]:
        x = t.inputs(node)[0]
        axis = int(t.argument(node, "dim", -1)) % max(len(t.shape(x)), 1)
        return t.emit(node, "softmax", [x], [t.spec(node)], axis=axis, function=function)

    return handler


def softmax_gradient(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str]:
        inputs = t.inputs(node)[:2]
        axis = int(t.argument(node, "dim", -1)) % max(len(t.shape(inputs[0])), 1)
        return t.emit(node, "softmax_gradient", inputs, axis=axis, function=function)

    return handler


def _axes(t: Translation, node: Node, rank: int) -> tuple[int, ...]:
    given = t.argument(node, "dim")
    if given is None or given == []:
        return tuple(range(rank))
    values = [given] if isinstance(given, int) else list(given)
    return tuple(sorted({int(value) % max(rank, 1) for value in values})) if rank else ()


def reduce(function: str, *after: str) -> Handler:
    """A reduction, with what happens to its result (or, for variances, before it) in words."""

    def handler(t: Translation, node: Node) -> Sequence[str | None]:
        inputs = t.inputs(node)
        x = inputs[0]
        if function in ("max", "min") and len(inputs) == 2:
            return [t.elementwise(node, f"{function}imum", inputs, t.spec(node))]
        specs = [spec for spec in t.specs(node) if spec]
        made = t.emit(
            node, "reduce", [x], specs, function=function, axes=_axes(t, node, len(t.shape(x)))
        )
        for step in after:
            made = (t.elementwise(node, step, made[:1], specs[0]), *made[1:])
        return list(made)

    return handler


def variance(t: Translation, node: Node) -> Sequence[str | None]:
    """Mean, squared distance from it, mean again; the root of that for deviations."""
    x = t.inputs(node)[0]
    name = operator_name(node)
    spec = t.spec(node)
    axes = _axes(t, node, len(t.shape(x)))
    (mean,) = t.emit(node, "reduce", [x], [spec], function="mean", axes=axes)
    distance = t.elementwise(node, "sub", [x, mean], (t.shape(x), t.dtype(x)))
    squared = t.elementwise(node, "square", [distance], (t.shape(x), t.dtype(x)))
    (made,) = t.emit(node, "reduce", [squared], [spec], function="mean", axes=axes)
    if name.startswith("std"):
        made = t.elementwise(node, "sqrt", [made], spec)
    return [made, mean] if name.endswith("_mean") else [made]


def scan(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str]:
        x = t.inputs(node)[0]
        axis = int(t.argument(node, "dim", 0)) % max(len(t.shape(x)), 1)
        return t.emit(node, "scan", [x], function=function, axis=axis)

    return handler


def sort(t: Translation, node: Node) -> Sequence[str]:
    x = t.inputs(node)[0]
    axis = int(t.argument(node, "dim", -1)) % max(len(t.shape(x)), 1)
    count = t.argument(node, "k")
    if count is None:
        return t.emit(node, "sort", [x], axis=axis)
    return t.emit(node, "sort", [x], axis=axis, count=int(count))


# --- losses -----------------------------------------------------------------------------------


def nll_loss(t: Translation, node: Node) -> Sequence[str | None]:
    """One number of each row, then their sum or mean; the total weight is a by-product."""
    x, target = t.inputs(node)[:2]
    shape = t.shape(target)
    axis = 1 if len(t.shape(x)) > 1 else 0
    (picked,) = t.emit(node, "gather", [x, target], [(shape, t.dtype(x))], axis=axis, grouped=True)
    if int(t.argument(node, "reduction", 1)):
        (picked,) = t.emit(
            node, "reduce", [picked], [t.spec(node)], function="mean", axes=tuple(range(len(shape)))
        )
    return [picked, None]


def nll_loss_backward(t: Translation, node: Node) -> Sequence[str]:
    gradient, _, target = t.inputs(node)[:3]
    spec = t.spec(node)
    axis = 1 if len(spec[0]) > 1 else 0
    return t.emit(
        node, "scatter", [gradient, target], [spec], axis=axis, function="set", grouped=True
    )


def loss(*steps: str) -> Handler:
    """Arithmetic of matching elements, then the reduction that the call asks for."""

    def handler(t: Translation, node: Node) -> Sequence[str]:
        inputs = t.inputs(node)
        wide: Spec = (t.shape(inputs[0]), t.dtype(inputs[0]))
        made = t.elementwise(node, steps[0], inputs, wide)
        for step in steps[1:]:
            made = t.elementwise(node, step, [made], wide)
        if t.shape(made) != t.spec(node)[0]:
            (made,) = t.emit(
                node, "reduce", [made], [t.spec(node)], function="mean",
                axes=tuple(range(len(wide[0]))),
            )  # fmt: skip
        # What some losses note for their gradient: which classes are wanted.
        noted = [t.elementwise(node, "eq", inputs[1:], spec) for spec in t.specs(node)[1:] if spec]
        return [made, *noted]

    return handler


def distances(t: Translation, node: Node) -> Sequence[str]:
    """Of each vector to each other: differences of all pairs, then sums over a vector."""
    inputs, spec = t.inputs(node), t.spec(node)
    wide: Spec = (*spec[0], t.shape(inputs[0])[-1]), spec[1]
    made = t.elementwise(node, "sub", inputs, wide)
    made = t.elementwise(node, "square", [made], wide)
    (summed,) = t.emit(node, "reduce", [made], [spec], function="sum", axes=(len(spec[0]),))
    return [t.elementwise(node, "sqrt", [summed], spec)]


def distances_backward(t: Translation, node: Node) -> Sequence[str]:
    """The differences again, by the gradient of each distance, and sums over the others."""
    gradient, *vectors = t.inputs(node)
    spec, pairs = t.spec(node), t.shape(gradient)
    wide: Spec = (*pairs, spec[0][-1]), spec[1]
    made = t.elementwise(node, "sub", vectors[:2], wide)
    made = t.elementwise(node, "mul", [made, gradient], wide)
    made = t.elementwise(node, "div", [made, vectors[-1]], wide)
    return t.emit(node, "reduce", [made], [spec], function="sum", axes=(len(pairs) - 1,))


def gradient_of(*steps: str) -> Handler:
    """Several steps of arithmetic, all in the shape of the result, for each result."""

    def handler(t: Translation, node: Node) -> Sequence[str | None]:
        return [_stepwise(t, node, steps, spec) if spec else None for spec in t.specs(node)]

    return handler


def _stepwise(t: Translation, node: Node, steps: Sequence[str], spec: Spec) -> str:
    made = t.elementwise(node, steps[0], t.inputs(node), spec)
    for step in steps[1:]:
        made = t.elementwise(node, step, [made], spec)
    return made
