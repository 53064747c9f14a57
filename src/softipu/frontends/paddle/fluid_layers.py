"""Functions of `paddle.fluid.layers`: names, order and defaults of arguments as they were.

Most call the function of today, the others build the operator itself. Only programs that use the
IPU API see them (`legacy_fluid`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paddle

from . import legacy_ops
from .legacy_ops import Form

_X = (("x", legacy_ops._REQUIRED),)
#: Functions that take today what they took then.
_PLAIN = """
    abs acos add_n asin assign atan cast ceil clip cos cosh cumsum diag equal erf exp flip
    floor greater_equal greater_than increment is_empty isfinite less_equal less_than linspace log
    logical_and logical_not logical_or logical_xor mean multiplex not_equal ones_like reciprocal
    reshape round rsqrt scale shape sign sin sinh slice sqrt square stack strided_slice tanh
    transpose unbind unstack zeros_like
"""
_FUNCTIONAL = """
    elu gelu label_smooth log_loss log_softmax maxout pixel_shuffle relu relu6 selu sigmoid softplus
    softshrink softsign square_error_cost swish unfold
"""
_STATIC = """
    batch_norm bilinear_tensor_product case cond conv2d conv2d_transpose conv3d conv3d_transpose
    group_norm instance_norm layer_norm prelu py_func row_conv spectral_norm switch_case while_loop
"""
_ELEMENTWISE = ("add", "sub", "mul", "div", "max", "min", "pow", "mod", "floordiv")
_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "all", "any")
_OWN: dict[str, Callable[..., Any]] = {}


def all_of_them() -> dict[str, Callable[..., Any]]:
    """By name; those of today as the program sees them now."""
    functional, static = paddle.nn.functional, paddle.static
    return {
        **{name: getattr(paddle, name) for name in _PLAIN.split()},
        **{name: getattr(functional, name) for name in _FUNCTIONAL.split()},
        **{name: getattr(static.nn, name) for name in _STATIC.split()},
        **{f"elementwise_{name}": functools.partial(_elementwise, f"elementwise_{name}")
           for name in _ELEMENTWISE},
        **{f"reduce_{name}": functools.partial(_reduced, getattr(paddle, name))
           for name in _REDUCTIONS},
        "accuracy": static.accuracy,
        "create_global_var": static.create_global_var,
        "create_parameter": static.create_parameter,
        "sum": paddle.add_n,
        "sums": paddle.add_n,
        **_OWN,
    }  # fmt: skip


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """One whose arguments, or their meaning, were others."""
    _OWN[function.__name__.rstrip("_")] = function
    return function


def _elementwise(
    operator: str, x: Any, y: Any, axis: int = -1, act: str | None = None, name: Any = None
) -> Any:
    form = Form(operator, ("X", "Y"), legacy_ops._XY, lambda _: {"axis": axis})
    out = legacy_ops.build(operator, form, (x, y), {"name": name})
    return out if act is None else getattr(paddle.nn.functional, act)(out)


def _reduced(
    today: Callable[..., Any], input: Any, dim: Any = None, keep_dim: bool = False, name: Any = None
) -> Any:
    return today(input, axis=dim, keepdim=keep_dim, name=name)


@_own
def data(
    name: str,
    shape: Any,
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
) -> Any:
    batch = [-1] if append_batch_size and -1 not in shape else []
    return paddle.static.data(name, [*batch, *shape], dtype, lod_level)


@_own
def fc(
    input: Any,
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: Any = None,
) -> Any:
    return paddle.static.nn.fc(input, size, num_flatten_dims, param_attr, bias_attr, act, name)


@_own
def embedding(
    input: Any,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Any:
    return paddle.static.nn.embedding(
        input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype=dtype
    )


@_own
def one_hot(input: Any, depth: int, allow_out_of_range: bool = False) -> Any:
    return paddle.nn.functional.one_hot(input, depth)


@_own
def pool2d(
    input: Any,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: Any = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Any:
    algorithm = pool_padding.upper() if isinstance(pool_padding, str) else "EXPLICIT"
    attributes = {
        "pooling_type": pool_type,
        "ksize": _pair(pool_size),
        "strides": _pair(pool_stride),
        "paddings": _pair(pool_padding) if algorithm == "EXPLICIT" else [0, 0],
        "padding_algorithm": algorithm,
        "global_pooling": global_pooling,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
        "adaptive": False,
    }
    form = Form("pool2d", ("X",), _X, lambda _: attributes)
    return legacy_ops.build("pool2d", form, (input,), {"name": name})


def _pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value, value]


@_own
def dropout(
    x: Any,
    dropout_prob: float,
    is_test: bool | None = None,
    seed: int | None = None,
    name: Any = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Any:
    attributes = {
        "dropout_prob": dropout_prob,
        "is_test": bool(is_test),
        "fix_seed": seed is not None,
        "seed": seed or 0,
        "dropout_implementation": dropout_implementation,
    }
    form = Form("dropout", ("X",), _X, lambda _: attributes, also=(("Mask", "uint8"),))
    return legacy_ops.build("dropout", form, (x,), {"name": name})


@_own
def softmax(input: Any, use_cudnn: bool = True, name: Any = None, axis: int = -1) -> Any:
    return paddle.nn.functional.softmax(input, axis, name=name)


@_own
def cross_entropy(
    input: Any, label: Any, soft_label: bool = False, ignore_index: int = -100
) -> Any:
    """Of probabilities, a number for each row."""
    return paddle.nn.functional.cross_entropy(
        input,
        label,
        ignore_index=ignore_index,
        reduction="none",
        soft_label=soft_label,
        use_softmax=False,
    )


@_own
def softmax_with_cross_entropy(
    logits: Any,
    label: Any,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    return paddle.nn.functional.softmax_with_cross_entropy(
        logits, label, soft_label, ignore_index, numeric_stable_mode, return_softmax, axis
    )


@_own
def fill_constant(
    shape: Any, dtype: Any, value: Any, force_cpu: bool = False, out: Any = None, name: Any = None
) -> Any:
    made = paddle.full(shape, value, dtype, name)
    return made if out is None else paddle.assign(made, out)


@_own
def zeros(shape: Any, dtype: Any, force_cpu: bool = False, name: Any = None) -> Any:
    return paddle.zeros(shape, dtype, name)


@_own
def ones(shape: Any, dtype: Any, force_cpu: bool = False) -> Any:
    return paddle.ones(shape, dtype)


@_own
def range_(start: Any, end: Any, step: Any, dtype: Any, name: Any = None) -> Any:
    return paddle.arange(start, end, step, dtype, name=name)


@_own
def matmul(
    x: Any,
    y: Any,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: Any = None,
) -> Any:
    product = paddle.matmul(x, y, transpose_x, transpose_y, name=name)
    return product if alpha == 1.0 else paddle.scale(product, alpha)


@_own
def mul(x: Any, y: Any, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: Any = None) -> Any:
    columns = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    form = Form("mul", ("X", "Y"), legacy_ops._XY, lambda _: columns)
    return legacy_ops.build("mul", form, (x, y), {"name": name})


@_own
def argmax(x: Any, axis: int = 0) -> Any:
    return paddle.argmax(x, axis)


@_own
def argmin(x: Any, axis: int = 0) -> Any:
    return paddle.argmin(x, axis)


@_own
def argsort(input: Any, axis: int = -1, descending: bool = False, name: Any = None) -> Any:
    """Values and places, of which Paddle's function returns the places today."""
    form = Form("argsort", ("X",), _X, lambda _: {"axis": axis, "descending": descending},
                also=(("Indices", "int64"),))  # fmt: skip
    return legacy_ops.build_all("argsort", form, (input,), {"name": name})


@_own
def topk(input: Any, k: int, name: Any = None) -> Any:
    return paddle.topk(input, k, name=name)


@_own
def concat(input: Any, axis: Any = 0, name: Any = None) -> Any:
    return paddle.concat(input, axis, name)


@_own
def where(condition: Any) -> Any:
    """Places where it is true."""
    return paddle.nonzero(condition)


@_own
def split(input: Any, num_or_sections: Any, dim: int = -1, name: Any = None) -> Any:
    return paddle.split(input, num_or_sections, dim, name)


@_own
def squeeze(input: Any, axes: Any, name: Any = None) -> Any:
    return paddle.squeeze(input, axes or None, name)


@_own
def unsqueeze(input: Any, axes: Any, name: Any = None) -> Any:
    return paddle.unsqueeze(input, axes, name)


@_own
def flatten(x: Any, axis: int = 1, name: Any = None) -> Any:
    """To a matrix: rows of what is before the axis."""
    sides = [functools.reduce(_times, sizes, 1) for sizes in (x.shape[:axis], x.shape[axis:])]
    return paddle.reshape(x, sides, name=name)


def _times(product: int, size: int) -> int:
    return -1 if -1 in (product, size) else product * size


@_own
def gather(input: Any, index: Any, overwrite: bool = True) -> Any:
    return paddle.gather(input, index)


@_own
def expand(x: Any, expand_times: Any, name: Any = None) -> Any:
    return paddle.tile(x, expand_times, name)


@_own
def leaky_relu(x: Any, alpha: float = 0.02, name: Any = None) -> Any:
    return paddle.nn.functional.leaky_relu(x, alpha, name)


@_own
def pow_(x: Any, factor: Any = 1.0, name: Any = None) -> Any:
    return paddle.pow(x, factor, name=name)


def simple_img_conv_pool(
    input: Any,
    num_filters: int,
    filter_size: Any,
    pool_size: Any,
    pool_stride: Any,
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_dilation: Any = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Any:
    """Of `paddle.fluid.nets`."""
    out = paddle.static.nn.conv2d(
        input, num_filters, filter_size, conv_stride, conv_padding, conv_dilation, conv_groups,
        param_attr, bias_attr, act=act,
    )  # fmt: skip
    return pool2d(out, pool_size, pool_type, pool_stride, pool_padding, global_pooling)
