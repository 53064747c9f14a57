"""Norms, pools, softmax, losses, reductions and optimisers of Paddle programs."""

from __future__ import annotations

import math
from typing import Any

from .neutral_context import Handler, Operation, Spec, Translation, spec_of
from .neutral_products import spread

# --- normalisation ------------------------------------------------------------------------------


def batch_norm(t: Translation, op: Operation) -> None:
    """With statistics of the batch, which then also move the running ones; or with those."""
    x, item = t.first(op, "X"), op.made("Y")[0]
    spec = spec_of(item)
    weights = t.inputs(op, "Scale", "Bias")
    running = t.inputs(op, "Mean", "Variance")
    channels = t.elements(weights[0]) if weights else spec[0][1]
    stored = op.attribute("is_test", False) or op.attribute("use_global_stats", False)
    if stored:
        (made,) = t.emit("normalise", [x, *weights, *running], [spec], function="batch",
                         groups=channels, training=False)  # fmt: skip
        t.values[item["name"]] = made
        return
    statistic: Spec = ((channels,), "float32")
    made, mean, variance = t.emit(
        "normalise", [x, *weights], [spec, statistic, statistic], function="batch",
        groups=channels, training=True,
    )  # fmt: skip
    t.values[item["name"]] = made
    t.set(op, "SavedMean", mean)
    t.set(op, "SavedVariance", variance)
    if len(running) == 2:
        specs = [(t.shape(name), t.dtype(name)) for name in running]
        news = t.emit("elementwise", [*running, mean, variance], specs, function="lerp")
        for slot, new in zip(("MeanOut", "VarianceOut"), news, strict=True):
            t.set(op, slot, new)


def row_norm(function: str) -> Handler:
    """layer_norm, group_norm, instance_norm: groups are rows, groups of channels, channels."""

    def handler(t: Translation, op: Operation) -> None:
        x, item = t.first(op, "X"), op.made("Y")[0]
        spec = spec_of(item)
        groups = _groups(op, function, spec[0])
        statistics: list[Spec] = [((groups,), "float32")] * 2
        made = t.emit(
            "normalise", [x, *t.inputs(op, "Scale", "Bias")], [spec, *statistics],
            function=function, groups=groups, training=True,
        )  # fmt: skip
        t.values[item["name"]] = made[0]
        for slots, name in zip(
            (("Mean", "SavedMean"), ("Variance", "SavedVariance")), made[1:], strict=True
        ):
            for slot in slots:
                t.set(op, slot, name)

    return handler


def _groups(op: Operation, function: str, shape: tuple[int, ...]) -> int:
    if function == "layer":
        return math.prod(shape[: int(op.attribute("begin_norm_axis", 1))])
    if function == "group":
        return int(op.attribute("groups", 1)) * shape[0]
    return shape[0] * shape[1]


def norm_gradient(function: str) -> Handler:
    def handler(t: Translation, op: Operation) -> None:
        gradient, x = t.first(op, "Y@GRAD"), t.first(op, "X")
        shape = t.shape(gradient)
        scales = t.inputs(op, "Scale")
        if function == "batch":
            groups = t.elements(scales[0]) if scales else shape[1]
        else:
            groups = _groups(op, function, shape)
        statistics = t.inputs(op, "SavedMean", "SavedVariance") or t.inputs(op, "Mean", "Variance")
        items = op.made("X@GRAD", "Scale@GRAD", "Bias@GRAD")
        made = t.emit(
            "normalise_gradient", [gradient, x, *scales, *statistics],
            [spec_of(item) for item in items], function=function, groups=groups,
        )  # fmt: skip
        for item, name in zip(items, made, strict=True):
            t.values[item["name"]] = name

    return handler


# --- pools --------------------------------------------------------------------------------------


def pool(t: Translation, op: Operation) -> None:
    x, item = t.first(op, "X"), op.made("Out")[0]
    spec = spec_of(item)
    t.values[item["name"]] = t.emit(
        "pool", [x], [spec], function=_pooling(op), **_window(op, t.shape(x), spec[0])
    )[0]


def pool_gradient(t: Translation, op: Operation) -> None:
    x, gradient, item = t.first(op, "X"), t.first(op, "Out@GRAD"), op.made("X@GRAD")[0]
    inputs = [gradient, x] if _pooling(op) == "max" else [gradient]
    window = _window(op, t.shape(x), t.shape(gradient))
    t.values[item["name"]] = t.emit(
        "pool_gradient", inputs, [spec_of(item)], function=_pooling(op), **window
    )[0]


def _pooling(op: Operation) -> str:
    default = "max" if op.type.startswith("max_pool") else "avg"
    return "max" if op.attribute("pooling_type", default) == "max" else "mean"


def _window(op: Operation, wide: tuple[int, ...], narrow: tuple[int, ...]) -> dict[str, Any]:
    """Kernel and stride; those of adaptive and global pools follow from the two sizes."""
    if op.attribute("adaptive", False) or op.attribute("global_pooling", False):
        last = op.attribute("data_format", "NCHW") in ("NHWC", "NDHWC")
        fields = slice(1, -1) if last else slice(2, None)
        pairs = zip(wide[fields], narrow[fields], strict=True)
        size = tuple(-(-many // max(few, 1)) for many, few in pairs)
        return {"kernel": size, "stride": size}
    kernel = spread(op.attribute("ksize"), 2)
    return {"kernel": kernel, "stride": spread(op.attribute("strides"), len(kernel))}


# --- softmax, losses, reductions ----------------------------------------------------------------


def softmax(function: str) -> Handler:
    def handler(t: Translation, op: Operation) -> None:
        x, item = t.first(op, "X"), op.made("Out")[0]
        axis = int(op.attribute("axis", -1)) % max(len(t.shape(x)), 1)
        t.values[item["name"]] = t.emit(
            "softmax", [x], [spec_of(item)], axis=axis, function=function
        )[0]

    return handler


def softmax_gradient(function: str) -> Handler:
    def handler(t: Translation, op: Operation) -> None:
        inputs, item = t.inputs(op, "Out@GRAD", "Out"), op.made("X@GRAD")[0]
        axis = int(op.attribute("axis", -1)) % max(len(t.shape(inputs[0])), 1)
        t.values[item["name"]] = t.emit(
            "softmax_gradient", inputs, [spec_of(item)], axis=axis, function=function
        )[0]

    return handler


def cross_entropy(t: Translation, op: Operation) -> None:
    """softmax_with_cross_entropy: logarithms of probabilities, then one of each row."""
    logits, label = t.first(op, "Logits"), t.first(op, "Label")
    spec, item = (t.shape(logits), t.dtype(logits)), op.made("Loss")[0]
    axis = int(op.attribute("axis", -1)) % max(len(spec[0]), 1)
    (logs,) = t.emit("softmax", [logits], [spec], axis=axis, function="log_softmax")
    t.set(op, "Softmax", logs)
    t.values[item["name"]] = _picked(t, op, logs, label, axis, spec_of(item))


def negative_likelihood(t: Translation, op: Operation) -> None:
    """cross_entropy2 and nll_loss take probabilities or their logarithms."""
    x, label = t.first(op, "X"), t.first(op, "Label")
    item = op.made("Y", "Out")[0]
    axis = 1 if op.type == "nll_loss" else len(t.shape(x)) - 1
    if op.type.startswith("cross_entropy"):
        x = t.arithmetic("log", [x], (t.shape(x), t.dtype(x)))
    if op.type != "nll_loss" or op.attribute("reduction", "mean") == "none":
        t.values[item["name"]] = _picked(t, op, x, label, axis, spec_of(item))
        return
    picked = _picked(t, op, x, label, axis, (t.shape(label), t.dtype(x)))
    t.values[item["name"]] = t.emit(
        "reduce", [picked], [spec_of(item)], function=op.attribute("reduction", "mean"),
        axes=tuple(range(len(t.shape(label)))),
    )[0]  # fmt: skip


def _picked(t: Translation, op: Operation, x: str, label: str, axis: int, spec: Spec) -> str:
    if op.attribute("soft_label", False):
        product = t.arithmetic("mul", [x, label], (t.shape(x), t.dtype(x)))
        return t.emit("reduce", [product], [spec], function="sum", axes=(axis,))[0]
    return t.emit("gather", [x, label], [spec], axis=axis, grouped=True)[0]


def cross_entropy_gradient(t: Translation, op: Operation) -> None:
    """Gradient of the picked numbers, then of the softmax."""
    item = op.made("Logits@GRAD")[0]
    spec, logs = spec_of(item), t.first(op, "Softmax")
    axis = int(op.attribute("axis", -1)) % max(len(spec[0]), 1)
    start = _unpicked(t, op, t.first(op, "Loss@GRAD"), t.first(op, "Label"), axis, spec)
    t.values[item["name"]] = t.emit(
        "softmax_gradient", [start, logs], [spec], axis=axis, function="log_softmax"
    )[0]


def negative_likelihood_gradient(t: Translation, op: Operation) -> None:
    item = op.made("X@GRAD")[0]
    spec = spec_of(item)
    axis = 1 if op.type == "nll_loss_grad" else len(spec[0]) - 1
    gradient = t.first(op, "Y@GRAD", "Out@GRAD")
    t.values[item["name"]] = _unpicked(t, op, gradient, t.first(op, "Label"), axis, spec)


def _unpicked(
    t: Translation, op: Operation, gradient: str, label: str, axis: int, spec: Spec
) -> str:
    if op.attribute("soft_label", False):
        return t.arithmetic("mul", [label, gradient], spec)
    return t.emit(
        "scatter", [gradient, label], [spec], axis=axis, function="set", grouped=True
    )[0]  # fmt: skip


def _axes(op: Operation, rank: int) -> tuple[int, ...]:
    given = op.attribute("dim", op.attribute("axis"))
    if op.attribute("reduce_all", False) or given is None or given == []:
        return tuple(range(rank))
    values = given if isinstance(given, list | tuple) else [given]
    return tuple(sorted({int(axis) % max(rank, 1) for axis in values}))


def reduce(function: str) -> Handler:
    def handler(t: Translation, op: Operation) -> None:
        x, item = t.first(op, "X"), op.made("Out")[0]
        spec = spec_of(item)
        if t.elements(x) == math.prod(spec[0]) and function not in ("argmax", "argmin", "norm"):
            t.values[item["name"]] = t.look(x, spec[0])
            return
        axes = _reduced_axes(op, len(t.shape(x)))
        t.values[item["name"]] = t.emit("reduce", [x], [spec], function=function, axes=axes)[0]

    return handler


def _reduced_axes(op: Operation, rank: int) -> tuple[int, ...]:
    return tuple(range(rank)) if op.type.removesuffix("_grad") == "mean" else _axes(op, rank)


def reduce_gradient(function: str) -> Handler:
    """Each element gets its group's gradient: as it is, divided, or where the extreme was."""

    def handler(t: Translation, op: Operation) -> None:
        gradient, item = t.first(op, "Out@GRAD"), op.made("X@GRAD")[0]
        shape, dtype = spec_of(item)
        if t.elements(gradient) == math.prod(shape):
            t.values[item["name"]] = t.look(gradient, shape)
            return
        gone = _reduced_axes(op, len(shape))
        kept = tuple(1 if axis in gone else size for axis, size in enumerate(shape))
        if t.elements(gradient) == math.prod(kept):
            gradient = t.look(gradient, kept)
        wide = t.look(gradient, shape, "expand_view")
        if function == "mean":
            wide = t.arithmetic("div", [wide], (shape, dtype))
        elif function in ("max", "min", "prod"):
            x = t.first(op, "X")
            wide = t.arithmetic("where", [wide, x], (shape, dtype))
        t.values[item["name"]] = wide

    return handler


def scan(function: str) -> Handler:
    def handler(t: Translation, op: Operation) -> None:
        x, item = t.first(op, "X"), op.made("Out")[0]
        axis = int(op.attribute("axis", 0)) % max(len(t.shape(x)), 1)
        t.values[item["name"]] = t.emit("scan", [x], [spec_of(item)], function=function, axis=axis)[
            0
        ]

    return handler


def sort(t: Translation, op: Operation) -> None:
    x, items = t.first(op, "X"), op.made("Out", "Indices")
    axis = int(op.attribute("axis", -1)) % max(len(t.shape(x)), 1)
    count = op.attribute("k")
    attributes = {} if count is None else {"count": int(count)}
    made = t.emit("sort", [x], [spec_of(item) for item in items], axis=axis, **attributes)
    for item, name in zip(items, made, strict=True):
        t.values[item["name"]] = name


# --- optimisers ---------------------------------------------------------------------------------


def optimiser(*steps: tuple[str, tuple[str, ...], str]) -> Handler:
    """The arithmetic of an update. Each step: a function, what it reads (slots, or results of
    earlier steps in lower case), and the output slot or the name of its result."""

    def handler(t: Translation, op: Operation) -> None:
        parameter = t.first(op, "Param")
        spec = (t.shape(parameter), t.dtype(parameter))
        made: dict[str, str] = {}
        for function, reads, result in steps:
            inputs = [
                made[name] if name in made else t.inputs(op, name)[0]
                for name in reads
                if name in made or t.inputs(op, name)
            ]
            made[result] = t.arithmetic(function, inputs, spec)
            if not result.islower():
                t.set(op, result, made[result])

    return handler


SGD = optimiser(("mul", ("Grad", "LearningRate"), "step"), ("sub", ("Param", "step"), "ParamOut"))
MOMENTUM = optimiser(
    ("mul", ("Velocity",), "decayed"), ("add", ("decayed", "Grad"), "VelocityOut"),
    ("mul", ("VelocityOut", "LearningRate"), "step"), ("sub", ("Param", "step"), "ParamOut"),
)  # fmt: skip
ADAM = optimiser(
    ("lerp", ("Moment1", "Grad"), "Moment1Out"), ("mul", ("Moment2",), "decayed"),
    ("addcmul", ("decayed", "Grad"), "Moment2Out"), ("sqrt", ("Moment2Out",), "root"),
    ("add", ("root",), "divisor"),
    ("addcdiv", ("Param", "Moment1Out", "divisor", "LearningRate"), "ParamOut"),
)  # fmt: skip
ADAMW = optimiser(
    ("mul", ("Param",), "decayed_parameter"), ("lerp", ("Moment1", "Grad"), "Moment1Out"),
    ("mul", ("Moment2",), "decayed"), ("addcmul", ("decayed", "Grad"), "Moment2Out"),
    ("sqrt", ("Moment2Out",), "root"), ("add", ("root",), "divisor"),
    ("addcdiv", ("decayed_parameter", "Moment1Out", "divisor", "LearningRate"), "ParamOut"),
)  # fmt: skip
ADAGRAD = optimiser(
    ("addcmul", ("Moment", "Grad"), "MomentOut"), ("sqrt", ("MomentOut",), "root"),
    ("addcdiv", ("Param", "Grad", "root", "LearningRate"), "ParamOut"),
)  # fmt: skip
ADADELTA = optimiser(
    ("lerp", ("AvgSquaredGrad", "Grad"), "AvgSquaredGradOut"),
    ("sqrt", ("AvgSquaredUpdate",), "up"), ("rsqrt", ("AvgSquaredGradOut",), "down"),
    ("mul", ("up", "down"), "rate"),
    ("mul", ("rate", "Grad"), "change"),
    ("lerp", ("AvgSquaredUpdate", "change"), "AvgSquaredUpdateOut"),
    ("add", ("Param", "change"), "ParamOut"),
)  # fmt: skip
ADAMAX = optimiser(
    ("lerp", ("Moment", "Grad"), "MomentOut"), ("abs", ("Grad",), "size"),
    ("maximum", ("InfNorm", "size"), "InfNormOut"),
    ("addcdiv", ("Param", "MomentOut", "InfNormOut", "LearningRate"), "ParamOut"),
)  # fmt: skip
RMSPROP = optimiser(
    ("lerp", ("MeanSquare", "Grad"), "MeanSquareOut"), ("rsqrt", ("MeanSquareOut",), "rate"),
    ("mul", ("Grad", "rate"), "change"), ("scaled_add", ("Moment", "change"), "MomentOut"),
    ("sub", ("Param", "MomentOut"), "ParamOut"),
)  # fmt: skip


def lamb(t: Translation, op: Operation) -> None:
    """Adam, and a step that is as long as the weight is large."""
    parameter = t.first(op, "Param")
    spec = (t.shape(parameter), t.dtype(parameter))
    gradient = t.first(op, "Grad")
    first = t.arithmetic("lerp", [t.first(op, "Moment1"), gradient], spec)
    decayed = t.arithmetic("mul", [t.first(op, "Moment2")], spec)
    second = t.arithmetic("addcmul", [decayed, gradient], spec)
    root = t.arithmetic("add", [t.arithmetic("sqrt", [second], spec)], spec)
    change = t.arithmetic("div", [first, root], spec)
    change = t.arithmetic("scaled_add", [change, parameter], spec)
    axes = tuple(range(len(spec[0])))
    norms = [
        t.emit("reduce", [name], [((), "float32")], function="norm", axes=axes)[0]
        for name in (parameter, change)
    ]
    ratio = t.arithmetic("div", norms, ((), "float32"))
    made = t.arithmetic("scaled_add", [parameter, change, ratio], spec)
    t.set(op, "Moment1Out", first)
    t.set(op, "Moment2Out", second)
    t.set(op, "ParamOut", made)
