"""Convolutions and pools that an IPU has, and TensorFlow's own kernels for CPUs have not.

Channels first, and gradients of grouped and of dilated convolutions: without oneDNN, which
TensorFlow uses on some processors only, CPUs refuse them. Here they are computed with what every
CPU has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_nn_ops
from tensorflow.python.util import _pywrap_util_port

from . import descriptions

#: Formats with the channels first, and the same with the channels last.
_LAST = {"NCHW": "NHWC", "NCDHW": "NDHWC"}
_BY_DIMENSION = ("ksize", "strides", "dilations")
#: Convolutions and pools: which argument has the channels.
_DATA = {
    "avg_pool": "value", "avg_pool3d": "input", "conv2d": "input", "conv3d": "input",
    "conv2d_backprop_input": "out_backprop", "conv3d_backprop_input_v2": "out_backprop",
    "depthwise_conv2d_native": "input", "max_pool": "input", "max_pool3d": "input",
}  # fmt: skip


def on_any_cpu(stock: Callable[..., Any]) -> Callable[..., Any]:
    """What computes the same as `stock` of keyword arguments, and refuses no layout."""
    # XLA, which describes programs, has all of them; a description is the same everywhere.
    if stock.__name__ not in _DATA or _has_onednn() or descriptions.current() is not None:
        return stock
    computed = _convolution if stock.__name__ == "conv2d" else stock
    return functools.partial(_channels_last, computed, _DATA[stock.__name__])


def _has_onednn() -> bool:
    return bool(_pywrap_util_port.IsMklEnabled())


def _channels_last(stock: Callable[..., Any], data: str, **arguments: Any) -> Any:
    """Data with the channels first by way of the channels last."""
    if arguments["data_format"] not in _LAST:
        return stock(**arguments)
    rank = len(arguments["data_format"])
    to_last, back = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    changed: dict[str, Any] = {
        name: [arguments[name][axis] for axis in to_last]
        for name in _BY_DIMENSION
        if name in arguments
    }
    if arguments.get("explicit_paddings"):
        changed["explicit_paddings"] = _reordered_pairs(arguments["explicit_paddings"], to_last)
    if "input_sizes" in arguments:
        changed["input_sizes"] = tf.gather(arguments["input_sizes"], to_last)
    changed[data] = tf.transpose(arguments[data], to_last)
    changed["data_format"] = _LAST[arguments["data_format"]]
    return tf.transpose(stock(**arguments | changed), back)


def _reordered_pairs(flat: Sequence[int], order: Sequence[int]) -> list[int]:
    return [flat[2 * axis + side] for axis in order for side in (0, 1)]


def _convolution(input: Any, filter: Any, **rest: Any) -> Any:
    """`conv2d` with the channels last, with a gradient also where its filter is spread."""
    rates = rest["dilations"][1:3]
    if max(rates) == 1 or max(rest["strides"]) > 1:
        return _with_grouped_gradient(input, filter, **rest)
    value, padding = tf.convert_to_tensor(input), rest["padding"]
    if padding == "EXPLICIT":
        pairs = [rest["explicit_paddings"][2 * axis : 2 * axis + 2] for axis in range(4)]
        value, padding = tf.pad(value, pairs), "VALID"
    rest |= {"dilations": [1, 1, 1, 1], "explicit_paddings": []}

    def close(part: tf.Tensor, _blocks: Any, padding: str) -> tf.Tensor:
        return _with_grouped_gradient(part, filter, **rest | {"padding": padding})

    return tf.nn.with_space_to_batch(value, rates, padding, close, filter_shape=filter.shape[:2])


def _with_grouped_gradient(input: Any, filter: Any, **rest: Any) -> Any:
    """`conv2d` with the channels last, whose gradient goes group by group."""
    stock = _stock("conv2d")
    value, weights = tf.convert_to_tensor(input), tf.convert_to_tensor(filter)
    channels, of_a_group = value.shape[-1], weights.shape[2]
    if channels is None or of_a_group is None or channels == of_a_group:
        return stock(input=value, filter=weights, **rest)
    groups = channels // of_a_group
    given = {name: item for name, item in rest.items() if name != "name"}

    @tf.custom_gradient
    def grouped(value: tf.Tensor, weights: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> Any:
            parts = zip(
                tf.split(value, groups, 3), tf.split(weights, groups, 3),
                tf.split(upstream, groups, 3), strict=True,
            )  # fmt: skip
            pairs = [_gradients(*part, given) for part in parts]
            return tuple(tf.concat(each, 3) for each in zip(*pairs, strict=True))

        return stock(input=value, filter=weights, **rest), gradient

    return grouped(value, weights)


def _gradients(
    value: tf.Tensor, weights: tf.Tensor, upstream: tf.Tensor, given: dict[str, Any]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Those of one group: for its input and its filter."""
    of_input = _stock("conv2d_backprop_input")(
        input_sizes=tf.shape(value), filter=weights, out_backprop=upstream, **given
    )
    of_filter = gen_nn_ops.conv2d_backprop_filter(
        input=value, filter_sizes=tf.shape(weights), out_backprop=upstream, **given
    )
    return of_input, of_filter


def _stock(name: str) -> Callable[..., Any]:
    """TensorFlow's own function, also where one of ours stands before it."""
    found = getattr(gen_nn_ops, name)
    stock: Callable[..., Any] = getattr(found, "_softipu_stock", found)
    return stock
