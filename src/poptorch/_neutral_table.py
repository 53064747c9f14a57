"""What each ATen operator becomes in the neutral graph: one row each, by the operator's name.

Overloads share a row, and so does the form that writes in place (`add_` is `add`). Arithmetic of
matching elements keeps ATen's name as its function; gradients end in `_gradient`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from torch.fx import Node

from . import _neutral_layers as layers
from . import _neutral_moves as moves
from . import _neutral_products as products
from ._neutral_context import Handler, Translation, operator_name


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Functions of one element, or of matching elements, that are called on an IPU what ATen says.
_ELEMENTWISE = _words("""
    abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp
    clamp_max clamp_min clip copysign cos cosh deg2rad div elu eq erf erfc erfinv exp exp2 expm1
    floor floor_divide fmax fmin fmod frac ge gelu gt hardshrink hardsigmoid hardswish hardtanh
    heaviside hypot isfinite isinf isnan isneginf isposinf le leaky_relu lerp lgamma log log10
    log1p log2 log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or
    logical_xor logit lt masked_fill maximum minimum mish mul mvlgamma nan_to_num ne neg
    polygamma pow prelu rad2deg reciprocal relu relu6 remainder round rrelu_with_noise rsqrt
    rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_entr sqrt
    square sub tan tanh threshold true_divide trunc where xlogy digamma nextafter ldexp gcd lcm
    __and__ __or__ __xor__ __lshift__ __rshift__
""")

#: ATen's name to the function's where they differ.
_RENAMED: Mapping[str, str] = MappingProxyType({
    "absolute": "abs", "clip": "clamp", "log_sigmoid_forward": "log_sigmoid", "_prelu_kernel":
    "leaky_relu", "prelu": "leaky_relu", "threshold_backward": "relu_gradient",
    "log_sigmoid_backward": "sigmoid_gradient", "logit_backward": "logit_gradient",
    "rrelu_with_noise": "leaky_relu", "rrelu_with_noise_backward": "leaky_relu_gradient",
    "native_dropout_backward": "mul", "_masked_scale": "mul", "masked_fill": "where",
    "softshrink": "threshold", "hardshrink": "threshold", "celu": "elu",
    "softshrink_backward": "relu_gradient", "hardshrink_backward": "relu_gradient",
    "infinitely_differentiable_gelu_backward": "gelu_gradient",
})  # fmt: skip

#: Gradients of single functions: `x_backward` becomes `x_gradient`.
_GRADIENTS = _words("""
    elu gelu hardsigmoid hardswish hardtanh leaky_relu mish sigmoid silu softplus tanh
""")

#: Another way to look at the same memory, or nothing at all.
_NOTHING = _words("""
    alias detach lift lift_fresh lift_fresh_copy positive conj _conj resolve_conj resolve_neg
""")
_VIEWS = _words("""
    view _unsafe_view reshape _reshape_alias squeeze unsqueeze flatten unflatten view_as_real
    view_as_complex
""")
_PARTS = _words("""
    select slice narrow split split_with_sizes unsafe_split unsafe_split_with_sizes chunk unbind
    diagonal unfold as_strided tensor_split
""")
_TURNS = _words("permute transpose t swapaxes swapdims numpy_T")

#: Elements that end up elsewhere.
_COPIES = _words("""
    constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d repeat roll flip tile pixel_shuffle pixel_unshuffle
    channel_shuffle im2col col2im tril triu trace diag_embed repeat_interleave rot90
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    unfold_backward select_backward slice_backward diagonal_backward slice_scatter
    select_scatter diagonal_scatter as_strided_scatter unfold_copy view_copy permute_copy
    expand_copy slice_copy select_copy
""")

_FILLS = _words("""
    arange full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full
    scalar_tensor linspace logspace eye fill zero
""")
_EMPTIES = _words("empty empty_like empty_strided empty_permuted new_empty new_empty_strided")

_ATTENTION = _words("""
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    scaled_dot_product_attention _scaled_dot_product_attention_math
""")


def _function(name: str) -> Handler:
    return _elementwise(_RENAMED.get(name, name))


def _elementwise(function: str) -> Handler:
    def handler(t: Translation, node: Node) -> Sequence[str | None]:
        specs = [spec for spec in t.specs(node) if spec]
        made = t.elementwise(node, function, t.inputs(node), specs[0])
        return [made] + [None] * (len(t.specs(node)) - 1)

    return handler


def _power(t: Translation, node: Node) -> Sequence[str]:
    """A known exponent of 2 or ½ is a function of its own; others go by logarithm."""
    exponent = node.args[1] if len(node.args) > 1 else None
    known = {2: "square", 0.5: "sqrt", -1: "reciprocal", -0.5: "rsqrt"}
    function = known.get(exponent, "pow_scalar") if isinstance(exponent, int | float) else "pow"
    return [t.elementwise(node, function, t.inputs(node), t.spec(node))]


def _scaled(t: Translation, node: Node) -> Sequence[str]:
    """Division of a freshly drawn mask by a number is part of drawing it."""
    inputs = t.inputs(node)
    if len(inputs) == 1 and t.is_drawn(inputs[0]):
        return inputs
    return [t.elementwise(node, "div", inputs, t.spec(node))]


def _each(t: Translation, node: Node) -> Sequence[str]:
    """`_foreach_…`: one op for each tensor of the lists."""
    name = operator_name(node).removeprefix("_foreach_").rstrip("_")
    lists = [item for item in (*node.args, *node.kwargs.values()) if isinstance(item, list | tuple)]
    columns = [items for items in lists if items and all(isinstance(i, Node) for i in items)]
    singles = [item for item in (*node.args, *node.kwargs.values()) if isinstance(item, Node)]
    made: list[str] = []
    for row in zip(*columns, strict=True):
        inputs = [t.read(item, node) for item in (*row, *singles)]
        spec = (t.shape(inputs[0]), t.dtype(inputs[0]))
        if name == "norm":
            axes = tuple(range(len(spec[0])))
            made += t.emit(node, "reduce", inputs[:1], [((), spec[1])], function="norm", axes=axes)
        elif name == "copy":
            made += t.emit(node, "copy", inputs[1:2], [spec])
        else:
            made.append(t.elementwise(node, _RENAMED.get(name, name), inputs, spec))
    return made


def _rows() -> dict[str, Handler]:
    rows: dict[str, Handler] = {name: _function(name) for name in (*_ELEMENTWISE, *_RENAMED)}
    rows |= {f"{name}_backward": _elementwise(f"{name}_gradient") for name in _GRADIENTS}
    rows |= dict.fromkeys(_NOTHING, moves.same) | dict.fromkeys(_VIEWS, moves.view)
    rows |= dict.fromkeys(_PARTS, moves.part) | dict.fromkeys(_TURNS, moves.permute)
    rows |= dict.fromkeys(_COPIES, moves.copy) | dict.fromkeys(_FILLS, moves.fill)
    rows |= dict.fromkeys(_EMPTIES, moves.empty) | dict.fromkeys(_ATTENTION, products.attention)
    rows |= {f"{name}_backward": products.attention_backward for name in _ATTENTION}
    return rows | _OTHERS


#: Operators with a shape of their own.
_OTHERS: dict[str, Handler] = {
    "pow": _power,
    "div": _scaled,
    "expand": moves.expand,
    "expand_as": moves.expand,
    "broadcast_to": moves.expand,
    "clone": moves.clone,
    "contiguous": moves.clone,
    "copy": moves.assign,
    "to": moves.cast,
    "_to_copy": moves.cast,
    "cat": moves.concat,
    "concat": moves.concat,
    "stack": moves.concat,
    "hstack": moves.concat,
    "vstack": moves.concat,
    # products
    **dict.fromkeys(
        _words("mm bmm addmm baddbmm addbmm matmul mv addmv dot vdot linear"), products.matrix),
    "outer": products.outer,
    "ger": products.outer,
    "convolution": products.convolution,
    "_convolution": products.convolution,
    "convolution_overrideable": products.convolution,
    "convolution_backward": products.convolution_backward,
    # norms
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
         "_native_batch_norm_legit_no_training", "_batch_norm_with_update",
         "_native_batch_norm_legit_functional", "_batch_norm_no_update"), layers.batch_norm),
    "native_group_norm": layers.group_norm,
    "native_layer_norm": layers.layer_norm,
    "_fused_rms_norm": layers.layer_norm,
    "native_batch_norm_backward": layers.norm_gradient("batch"),
    "batch_norm_backward": layers.norm_gradient("batch"),
    "native_group_norm_backward": layers.norm_gradient("group"),
    "native_layer_norm_backward": layers.norm_gradient("layer"),
    "_fused_rms_norm_backward": layers.norm_gradient("rms"),
    # pools
    **dict.fromkeys(
        ("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
         "max_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
         "fractional_max_pool2d"), layers.pool("max")),
    **dict.fromkeys(
        ("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
         "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), layers.pool("mean")),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
         "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
        layers.pool_gradient("max")),
    **dict.fromkeys(
        ("avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward",
         "_adaptive_avg_pool3d_backward"), layers.pool_gradient("mean")),
    # softmax
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), layers.softmax("softmax")),
    **dict.fromkeys(("_log_softmax", "log_softmax"), layers.softmax("log_softmax")),
    "_softmax_backward_data": layers.softmax_gradient("softmax"),
    "_log_softmax_backward_data": layers.softmax_gradient("log_softmax"),
    # reductions and scans
    **{name: layers.reduce(name) for name in ("sum", "mean", "prod", "any", "all", "argmax",
                                              "argmin", "max", "min")},
    "amax": layers.reduce("max"),
    "amin": layers.reduce("min"),
    "aminmax": layers.reduce("max"),
    "nansum": layers.reduce("sum"),
    "count_nonzero": layers.reduce("sum"),
    "logsumexp": layers.reduce("sum", "log"),
    "norm": layers.reduce("norm"),
    "linalg_vector_norm": layers.reduce("norm"),
    "median": layers.sort,
    **dict.fromkeys(("var", "var_mean", "std", "std_mean"), layers.variance),
    **{name: layers.scan(name) for name in ("cumsum", "cumprod", "cummax", "cummin",
                                            "logcumsumexp")},
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "msort"), layers.sort),
    # losses
    "nll_loss_forward": layers.nll_loss,
    "nll_loss2d_forward": layers.nll_loss,
    "nll_loss_backward": layers.nll_loss_backward,
    "nll_loss2d_backward": layers.nll_loss_backward,
    "mse_loss": layers.loss("sub", "square"),
    "mse_loss_backward": layers.gradient_of("sub", "mul"),
    "smooth_l1_loss": layers.loss("sub", "abs", "square", "where"),
    "smooth_l1_loss_backward": layers.gradient_of("sub", "clamp", "mul"),
    "huber_loss": layers.loss("sub", "abs", "square", "where"),
    "huber_loss_backward": layers.gradient_of("sub", "clamp", "mul"),
    "binary_cross_entropy": layers.loss("log", "log1p", "lerp"),
    "binary_cross_entropy_backward": layers.gradient_of("sub", "mul", "div"),
    "binary_cross_entropy_with_logits": layers.loss("exp", "log1p", "mul", "sub"),
    "soft_margin_loss": layers.loss("mul", "exp", "log1p"),
    "soft_margin_loss_backward": layers.gradient_of("mul", "exp", "div"),
    "multi_margin_loss_backward": layers.gradient_of("sub", "mul"),
    "multilabel_margin_loss_backward": layers.gradient_of("sub", "mul"),
    "_prelu_kernel_backward": layers.gradient_of("leaky_relu_gradient"),
    "multi_margin_loss": layers.loss("sub", "relu"),
    "multilabel_margin_loss_forward": layers.loss("sub", "relu"),
    "glu": _elementwise("glu"),
    "glu_backward": layers.gradient_of("sigmoid_gradient", "mul"),
    # by index
    "embedding": moves.gather(False),
    "embedding_renorm": moves.gather(False),
    "_embedding_bag": moves.embedding_bag,
    "_embedding_bag_forward_only": moves.embedding_bag,
    "index_select": moves.gather(False),
    "take": moves.gather(False),
    "gather": moves.gather(True),
    "take_along_dim": moves.gather(True),
    "index": moves.index,
    "_unsafe_index": moves.index,
    "masked_scatter": moves.scatter("set", False),
    "grid_sampler_2d": moves.gather(True),
    "grid_sampler_3d": moves.gather(True),
    "grid_sampler_2d_backward": moves.grid_sampler_backward,
    "grid_sampler_3d_backward": moves.grid_sampler_backward,
    "embedding_dense_backward": moves.embedding_backward,
    "_embedding_bag_backward": moves.embedding_backward,
    "_embedding_bag_dense_backward": moves.embedding_backward,
    "index_select_backward": moves.embedding_backward,
    "index_put": moves.scatter(None, False),
    "_unsafe_index_put": moves.scatter(None, False),
    "_index_put_impl": moves.scatter(None, False),
    "index_add": moves.scatter("add", False),
    "index_copy": moves.scatter("set", False),
    "index_fill": moves.scatter("set", False),
    "index_reduce": moves.scatter("add", False),
    "put": moves.scatter(None, False),
    "scatter": moves.scatter("set", True),
    "scatter_add": moves.scatter("add", True),
    "scatter_reduce": moves.scatter("add", True),
    "bucketize": _elementwise("compare"),
    # random
    **dict.fromkeys(("rand", "rand_like", "uniform", "randint", "randint_like", "random"),
                    moves.random("uniform")),
    **dict.fromkeys(("randn", "randn_like", "normal", "normal_functional", "log_normal"),
                    moves.random("normal")),
    "bernoulli": moves.random("bernoulli"),
    "exponential": moves.random("uniform"),
    "native_dropout": moves.dropout,
    "dropout": moves.dropout,
    # images
    **dict.fromkeys(
        (f"{prefix}{name}{ending}"
         for prefix in ("", "_")
         for name in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
                      "upsample_nearest_exact1d", "upsample_nearest_exact2d",
                      "upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
                      "upsample_bicubic2d", "upsample_trilinear3d", "upsample_bilinear2d_aa",
                      "upsample_bicubic2d_aa")
         for ending in ("", "_backward")), moves.interpolate),
    "_cdist_forward": layers.distances,
    "_pdist_forward": layers.distances,
    "_cdist_backward": layers.distances_backward,
}  # fmt: skip

TABLE: Mapping[str, Handler] = MappingProxyType(_rows())

#: Core operators that no row can be written for, and why.
NEVER_CAPTURED: Mapping[str, str] = MappingProxyType({
    "_local_scalar_dense": "hands a value to Python, which a capture refuses",
    "nonzero": "its shape depends on values, which a capture refuses",
    "resize_": "changes the size of memory, which a graph of fixed shapes has no use for",
    "sym_is_contiguous": "asks about memory while capturing; not an operation on data",
    "sym_numel": "asks for a size while capturing; not an operation on data",
    "sym_size": "asks for a size while capturing; not an operation on data",
    "sym_storage_offset": "asks about memory while capturing; not an operation on data",
    "sym_stride": "asks about memory while capturing; not an operation on data",
    "_fft_c2r": "no IPU program for it is known: listed as unknown and bounded by its bytes",
    "_fft_r2c": "no IPU program for it is known: listed as unknown and bounded by its bytes",
    "randperm": "no IPU program for it is known: listed as unknown and bounded by its bytes",
})  # fmt: skip


def row_of(name: str) -> Handler | None:
    """The row of an operator, also of the form that writes in place."""
    if name.startswith("_foreach_"):
        return _each
    return TABLE.get(name) or (TABLE.get(name.rstrip("_")) if name.endswith("_") else None)
