"""What each operation of Paddle becomes in the neutral graph: one row each, by its type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from . import neutral_layers as layers
from . import neutral_moves as moves
from . import neutral_products as products
from . import neutral_recurrent as recurrent
from .neutral_context import Handler, Operation, Translation, spec_of


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Functions of one tensor that are called on an IPU what Paddle says, with `_grad` for gradients.
UNARY = _words("""
    abs acos acosh asin asinh atan atanh ceil celu cos cosh elu erf erfinv exp expm1 floor gelu
    lgamma log log10 log1p log2 logsigmoid mish reciprocal relu relu6 round rsqrt selu sigmoid
    sign silu sin sinh softplus softsign sqrt square tan tanh trunc swish digamma
    isfinite isfinite_v2 isinf_v2 isnan_v2 bitwise_not logical_not leaky_relu hard_sigmoid
    hard_swish hard_shrink softshrink tanh_shrink thresholded_relu clip brelu logit stanh
""")
_UNARY_NAMES: Mapping[str, str] = MappingProxyType({
    "celu": "elu", "logsigmoid": "log_sigmoid", "swish": "silu", "hard_sigmoid": "hardsigmoid",
    "hard_swish": "hardswish", "hard_shrink": "threshold", "softshrink": "threshold",
    "tanh_shrink": "tanh", "thresholded_relu": "threshold", "clip": "clamp", "brelu": "clamp",
    "isfinite_v2": "isfinite", "isinf_v2": "isinf", "isnan_v2": "isnan", "stanh": "tanh",
})  # fmt: skip
#: Functions of two tensors. What each gradient costs is in `_BINARY_GRADIENTS`.
BINARY: Mapping[str, str] = MappingProxyType({
    "elementwise_add": "add", "elementwise_sub": "sub", "elementwise_mul": "mul",
    "elementwise_div": "div", "elementwise_max": "maximum", "elementwise_min": "minimum",
    "elementwise_pow": "pow", "elementwise_mod": "remainder",
    "elementwise_floordiv": "floor_divide", "maximum": "maximum", "minimum": "minimum",
    "equal": "compare", "not_equal": "compare", "less_than": "compare", "less_equal": "compare",
    "greater_than": "compare", "greater_equal": "compare", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "atan2": "atan2",
    "prelu": "leaky_relu", "elementwise_fmax": "maximum", "elementwise_fmin": "minimum",
})  # fmt: skip
#: For the gradients of the first and the second operand: what is done to the result's gradient.
_BINARY_GRADIENTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType({
    "elementwise_sub": ((), ("neg",)),
    "elementwise_mul": (("mul Y",), ("mul X",)),
    "elementwise_div": (("div Y",), ("mul X", "div Y", "neg")),
    "elementwise_max": (("where X",), ("where Y",)),
    "elementwise_min": (("where X",), ("where Y",)),
    "maximum": (("where X",), ("where Y",)),
    "minimum": (("where X",), ("where Y",)),
    "elementwise_pow": (("mul Y", "pow X"), ("log X", "mul X")),
    "prelu": (("leaky_relu_gradient X",), ("mul X",)),
})  # fmt: skip


def _unary(function: str) -> Handler:
    def handler(t: Translation, op: Operation) -> None:
        item = op.made("Out")[0]
        t.values[item["name"]] = t.arithmetic(function, t.inputs(op, "X")[:1], spec_of(item))

    return handler


def _unary_gradient(function: str) -> Handler:
    """One function of the result's gradient and what was kept of the forward pass."""

    def handler(t: Translation, op: Operation) -> None:
        item = op.made("X@GRAD")[0]
        kept = t.inputs(op, "Out") or t.inputs(op, "X")
        inputs = [t.first(op, "Out@GRAD"), *kept[:1]]
        t.values[item["name"]] = t.arithmetic(function, inputs, spec_of(item))

    return handler


def _binary(t: Translation, op: Operation) -> None:
    function, item = BINARY[op.type], op.made("Out")[0]
    left, right = t.first(op, "X"), t.first(op, "Y", "X2", "Alpha")
    once = t.uses.get(op.given("X")[0], 0) == 1
    if function == "add" and once and t.add_bias(left, right):
        t.values[item["name"]] = left
        return
    if left == right and function == "mul":
        t.values[item["name"]] = t.arithmetic("square", [left], spec_of(item))
        return
    t.values[item["name"]] = t.arithmetic(function, [left, right], spec_of(item))


def _binary_gradient(t: Translation, op: Operation) -> None:
    """Gradients of both operands; where one was broadcast, a sum over what was repeated."""
    gradient = t.first(op, "Out@GRAD")
    wide = (t.shape(gradient), t.dtype(gradient))
    name = op.type.removesuffix("_grad")
    for slot, steps in zip(
        ("X@GRAD", "Y@GRAD"), _BINARY_GRADIENTS.get(name, ((), ())), strict=True
    ):
        for item in op.made(slot, *(["Alpha@GRAD"] if slot == "Y@GRAD" else [])):
            made = gradient
            for step in steps:
                function, _, operand = step.partition(" ")
                others = t.inputs(op, operand)[:1] if operand else []
                made = t.arithmetic(function, [made, *others], wide)
            t.values[item["name"]] = t.summed_to(made, spec_of(item)[0])


def _scale(t: Translation, op: Operation) -> None:
    """A factor, an addend, or both; neither is nothing."""
    x, item = t.first(op, "X"), op.made("Out")[0]
    spec = spec_of(item)
    if op.attribute("scale", 1.0) != 1.0 or op.has("ScaleTensor"):
        x = t.arithmetic("mul", [x], spec)
    if op.attribute("bias", 0.0):
        x = t.arithmetic("add", [x], spec)
    t.values[item["name"]] = x


def _power(t: Translation, op: Operation) -> None:
    known = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal", -0.5: "rsqrt"}
    function = known.get(float(op.attribute("factor", 1.0)), "pow_scalar")
    _unary(function)(t, op)


def _power_gradient(t: Translation, op: Operation) -> None:
    item = op.made("X@GRAD")[0]
    inputs = [t.first(op, "Out@GRAD"), t.first(op, "X")]
    made = t.arithmetic("mul", inputs, spec_of(item))
    if float(op.attribute("factor", 1.0)) != 2.0:
        made = t.arithmetic("pow_scalar", [made], spec_of(item))
    t.values[item["name"]] = made


def _sum(t: Translation, op: Operation) -> None:
    """`sum` adds tensors up: gradients that come from several places."""
    inputs, item = t.inputs(op, "X"), op.made("Out")[0]
    spec = spec_of(item)
    made = inputs[0] if len(inputs) == 1 else t.arithmetic("add", inputs, spec)
    t.values[item["name"]] = made


def _where(t: Translation, op: Operation) -> None:
    item = op.made("Out")[0]
    t.values[item["name"]] = t.arithmetic(
        "where", t.inputs(op, "X", "Y", "Condition"), spec_of(item)
    )


def _where_gradient(t: Translation, op: Operation) -> None:
    gradient, condition = t.first(op, "Out@GRAD"), t.first(op, "Condition")
    wide = (t.shape(gradient), t.dtype(gradient))
    for item in op.made("X@GRAD", "Y@GRAD"):
        made = t.arithmetic("where", [gradient, condition], wide)
        t.values[item["name"]] = t.summed_to(made, spec_of(item)[0])


def _square_loss(t: Translation, op: Operation) -> None:
    """square_error_cost and its kin: a difference, then a square."""
    left, right = t.inputs(op)[:2]
    item = op.made("Out", "Loss")[0]
    made = t.arithmetic("sub", [left, right], spec_of(item))
    t.values[item["name"]] = t.arithmetic("square", [made], spec_of(item))


def _cross_entropy_of_logits(t: Translation, op: Operation) -> None:
    item = op.made("Out", "X@GRAD")[0]
    made = t.inputs(op, "Out@GRAD", "X", "Label")
    name = made[0]
    steps = ("sigmoid", "sub", "mul") if op.has("X@GRAD") else ("exp", "log1p", "mul", "sub")
    for position, step in enumerate(steps):
        name = t.arithmetic(step, made if position == 0 else [name], spec_of(item))
    t.values[item["name"]] = name


def _norm(t: Translation, op: Operation) -> None:
    """p_norm, squared_l2_norm: a reduction of squares."""
    layers.reduce("norm")(t, op)


def _check_finite(t: Translation, op: Operation) -> None:
    """Loss scaling looks at every gradient, and divides it."""
    for item, name in zip(op.made("Out"), t.inputs(op, "X"), strict=False):
        t.values[item["name"]] = t.arithmetic("mul", [name], spec_of(item))
    for item in op.made("FoundInfinite"):
        t.values[item["name"]] = t.emit("fill", [], [spec_of(item)])[0]


def _rows() -> dict[str, Handler]:
    rows: dict[str, Handler] = {}
    for name in UNARY:
        function = _UNARY_NAMES.get(name, name)
        rows[name] = _unary(function)
        rows[f"{name}_grad"] = _unary_gradient(f"{function}_gradient")
    # Gradients that are one product with something the forward pass kept or can make again.
    for name, functions in {
        "abs": "mul", "exp": "mul", "log": "div", "square": "mul", "sqrt": "div", "rsqrt": "mul",
        "reciprocal": "mul", "sin": "cos", "cos": "sin", "log1p": "div", "log2": "div",
        "log10": "div", "clip": "hardtanh_gradient", "brelu": "hardtanh_gradient", "erf": "exp",
        "expm1": "mul", "tan": "square", "pow": "mul", "softsign": "div", "round": "mul",
        "floor": "mul", "ceil": "mul", "sign": "mul",
    }.items():  # fmt: skip
        rows[f"{name}_grad"] = _unary_gradient(functions)
    for name in BINARY:
        rows[name] = _binary
        rows[f"{name}_grad"] = _binary_gradient
    for kind in ("sum", "mean", "max", "min", "prod", "any", "all"):
        rows[f"reduce_{kind}"] = layers.reduce(kind)
        rows[f"reduce_{kind}_grad"] = layers.reduce_gradient(kind)
    return rows | _OTHERS


_OTHERS: dict[str, Handler] = {
    "scale": _scale, "pow": _power, "pow_grad": _power_gradient, "sum": _sum, "add_n": _sum,
    "where": _where, "where_grad": _where_gradient, "square_error_cost": _square_loss,
    "sigmoid_cross_entropy_with_logits": _cross_entropy_of_logits,
    "sigmoid_cross_entropy_with_logits_grad": _cross_entropy_of_logits,
    "mean": layers.reduce("mean"), "mean_grad": layers.reduce_gradient("mean"),
    "p_norm": _norm, "squared_l2_norm": _norm, "norm": _norm, "frobenius_norm": _norm,
    "arg_max": layers.reduce("argmax"), "arg_min": layers.reduce("argmin"),
    "logsumexp": layers.reduce("sum"), "cumsum": layers.scan("cumsum"),
    "cumprod": layers.scan("cumprod"), "top_k": layers.sort, "top_k_v2": layers.sort,
    "argsort": layers.sort, "check_finite_and_unscale": _check_finite,
    # products
    **dict.fromkeys(_words("matmul_v2 matmul bmm mv dot"), products.matmul),
    **dict.fromkeys(
        _words("matmul_v2_grad matmul_grad bmm_grad mv_grad mul_grad"), products.matmul_gradient),
    "mul": products.fully_connected, "fc": products.fully_connected,
    **dict.fromkeys(
        _words("conv2d depthwise_conv2d conv3d conv2d_transpose depthwise_conv2d_transpose "
               "conv3d_transpose"), products.convolution),
    **dict.fromkeys(
        _words("conv2d_grad depthwise_conv2d_grad conv3d_grad conv2d_transpose_grad "
               "depthwise_conv2d_transpose_grad conv3d_transpose_grad"),
        products.convolution_gradient),
    # norms, pools, softmax, losses
    **dict.fromkeys(_words("batch_norm sync_batch_norm inplace_abn"), layers.batch_norm),
    **dict.fromkeys(_words("batch_norm_grad sync_batch_norm_grad"), layers.norm_gradient("batch")),
    "layer_norm": layers.row_norm("layer"), "layer_norm_grad": layers.norm_gradient("layer"),
    "group_norm": layers.row_norm("group"), "group_norm_grad": layers.norm_gradient("group"),
    "instance_norm": layers.row_norm("instance"),
    "instance_norm_grad": layers.norm_gradient("instance"),
    **dict.fromkeys(_words("pool2d pool3d max_pool2d_with_index"), layers.pool),
    **dict.fromkeys(_words("pool2d_grad pool3d_grad max_pool2d_with_index_grad"),
                    layers.pool_gradient),
    "softmax": layers.softmax("softmax"), "softmax_grad": layers.softmax_gradient("softmax"),
    "log_softmax": layers.softmax("log_softmax"),
    "log_softmax_grad": layers.softmax_gradient("log_softmax"),
    "softmax_with_cross_entropy": layers.cross_entropy,
    "softmax_with_cross_entropy_grad": layers.cross_entropy_gradient,
    **dict.fromkeys(_words("cross_entropy cross_entropy2 nll_loss"), layers.negative_likelihood),
    **dict.fromkeys(_words("cross_entropy_grad cross_entropy_grad2 nll_loss_grad"),
                    layers.negative_likelihood_gradient),
    "rnn": recurrent.rnn, "rnn_grad": recurrent.rnn_gradient,
    # looks and moves
    **dict.fromkeys(
        _words("assign share_data identity_loss identity print memcpy c_identity shadow_output"),
        moves.same),
    "identity_loss_grad": moves.same, "assign_grad": moves.same,
    **dict.fromkeys(
        _words("reshape2 reshape reshape2_grad reshape_grad squeeze2 squeeze squeeze2_grad "
               "unsqueeze2 unsqueeze unsqueeze2_grad flatten flatten2 flatten_contiguous_range "
               "flatten2_grad flatten_contiguous_range_grad squeeze_grad unsqueeze_grad"),
        moves.view),
    **dict.fromkeys(_words("transpose2 transpose transpose2_grad transpose_grad"), moves.permute),
    **dict.fromkeys(_words("slice split unbind unstack strided_slice crop_tensor split_with_num"),
                    moves.part),
    **dict.fromkeys(_words("slice_grad strided_slice_grad"), moves.part_gradient),
    **dict.fromkeys(_words("expand_v2 expand expand_as_v2 broadcast_to"), moves.expand),
    **dict.fromkeys(_words("expand_v2_grad expand_grad expand_as_v2_grad tile_grad"),
                    moves.expand_gradient),
    **dict.fromkeys(_words("concat stack"), moves.concat),
    **dict.fromkeys(_words("concat_grad stack_grad"), moves.concat_gradient),
    "split_grad": moves.split_gradient,
    **dict.fromkeys(
        _words("pad pad2d pad3d pad_grad pad2d_grad pad3d_grad tile roll roll_grad flip reverse "
               "pixel_shuffle pixel_shuffle_grad shuffle_channel tril_triu tril_triu_grad "
               "space_to_depth meshgrid"), moves.copy),
    "cast": moves.cast,
    **dict.fromkeys(
        _words("fill_constant fill_any_like fill_zeros_like fill_constant_batch_size_like range "
               "assign_value eye linspace fill_any shape size"), moves.fill),
    "uniform_random": moves.random("uniform"), "gaussian_random": moves.random("normal"),
    "truncated_gaussian_random": moves.random("normal"), "randint": moves.random("uniform"),
    "bernoulli": moves.random("bernoulli"),
    "dropout": moves.dropout, "dropout_grad": moves.dropout_gradient,
    **dict.fromkeys(_words("lookup_table_v2 lookup_table gather gather_nd index_select"),
                    moves.gather),
    **dict.fromkeys(_words("lookup_table_v2_grad lookup_table_grad gather_grad gather_nd_grad "
                           "index_select_grad"), moves.gather_gradient),
    **dict.fromkeys(_words("scatter scatter_nd_add"), moves.scatter),
    "one_hot_v2": moves.one_hot, "one_hot": moves.one_hot,
    **dict.fromkeys(
        (f"{name}{version}{ending}"
         for name in ("nearest_interp", "bilinear_interp", "bicubic_interp")
         for version in ("", "_v2") for ending in ("", "_grad")), moves.interpolate),
    # optimisers
    "sgd": layers.SGD, "momentum": layers.MOMENTUM, "merged_momentum": layers.MOMENTUM,
    "adam": layers.ADAM, "adamw": layers.ADAMW, "lamb": layers.lamb, "adagrad": layers.ADAGRAD,
    "adadelta": layers.ADADELTA, "adamax": layers.ADAMAX, "rmsprop": layers.RMSPROP,
}  # fmt: skip

TABLE: Mapping[str, Handler] = MappingProxyType(_rows())
_VERSION = re.compile(r"_v\d+$")


def row_of(name: str) -> Handler | None:
    """The row of an operation; versions of one mean the same."""
    return TABLE.get(name) or TABLE.get(_VERSION.sub("", name))
