"""Group, instance and layer normalisation, with variables of their own as in TensorFlow 1."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import group_norm as popnn

__all__ = ["group_norm", "instance_norm", "layer_norm"]

#: The smallest epsilon that float16 does not flush to zero.
_SAFE_EPSILON = 1.53e-5


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-5,
    param_initializers: dict[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> tf.Tensor:
    """Normalised over space and over the channels of each group.

    Channel c is in group c % groups by default; without `strided_channel_grouping` groups are
    runs of neighbours, as in other frameworks.
    """
    _warn_of_small_epsilon("group_norm", epsilon)
    return _normalised(
        inputs, groups, channels_axis, center, scale, epsilon, param_initializers, reuse,
        variables_collections, training, trainable, scope, "GroupNorm", strided_channel_grouping,
    )  # fmt: skip


def layer_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-5,
    param_initializers: dict[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Normalised over space and all channels: one group."""
    _warn_of_small_epsilon("layer_norm", epsilon)
    return _normalised(
        inputs, 1, channels_axis, center, scale, epsilon, param_initializers, reuse,
        variables_collections, training, trainable, scope, "LayerNorm", False,
    )  # fmt: skip


def instance_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-5,
    param_initializers: dict[str, Any] | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Normalised over space, each channel by itself: as many groups as channels."""
    _warn_of_small_epsilon("instance_norm", epsilon)
    inputs = tf.convert_to_tensor(inputs)
    groups = inputs.shape[_positive_axis(inputs, channels_axis)]
    return _normalised(
        inputs, groups, channels_axis, center, scale, epsilon, param_initializers, reuse,
        variables_collections, training, trainable, scope, "InstanceNorm", False,
    )  # fmt: skip


def _normalised(
    inputs: Any, groups: int | None, channels_axis: int, center: bool, scale: bool,
    epsilon: float, initializers: dict[str, Any] | None, reuse: Any, collections: Any,
    training: bool, trainable: bool, scope: Any, kind: str, strided: bool,
) -> tf.Tensor:  # fmt: skip
    inputs = tf.convert_to_tensor(inputs)
    axis = _positive_axis(inputs, channels_axis)
    channels = inputs.shape[axis]
    layout: dict[str, Any] = {
        "data_format": _data_format(axis, inputs.shape.rank),
        "epsilon": epsilon,
        "num_groups": groups,
        "strided_channel_grouping": strided,
    }
    _check_groups(inputs, groups, channels, axis)
    make = _ParameterMaker(channels, inputs.dtype, initializers or {}, collections, trainable)
    with tf.compat.v1.variable_scope(scope, kind, [inputs], reuse=reuse):
        beta = make("beta", tf.compat.v1.zeros_initializer(), center)
        gamma = make("gamma", tf.compat.v1.ones_initializer(), scale)
        if training:
            return popnn.training(inputs, gamma, beta, **layout)[0]
        mean, inverse = popnn.statistics(inputs, **layout)
        return popnn.inference(inputs, gamma, beta, mean, inverse, **layout)


class _ParameterMaker:
    """Makes gamma and beta: a variable, or a constant where the caller does not want one."""

    def __init__(
        self, channels: int, dtype: Any, initializers: dict[str, Any], collections: Any,
        trainable: bool,
    ) -> None:  # fmt: skip
        self._shape = [channels]
        self._dtype = dtype
        self._initializers = initializers
        self._collections = collections
        self._trainable = trainable

    def __call__(self, name: str, default: Any, wanted: bool) -> Any:
        if not wanted:
            return default(self._shape, self._dtype)
        by_name = isinstance(self._collections, dict)
        return tf.compat.v1.get_variable(
            name,
            shape=self._shape,
            dtype=self._dtype,
            initializer=self._initializers.get(name, default),
            collections=self._collections.get(name) if by_name else self._collections,
            trainable=self._trainable,
        )


def _positive_axis(inputs: tf.Tensor, axis: int) -> int:
    rank = inputs.shape.rank
    if rank is None:
        raise ValueError(f"Inputs {inputs.name} has undefined rank.")
    if axis > rank - 1:
        raise ValueError("Axis is out of bounds.")
    return axis + rank if axis < 0 else axis


def _data_format(axis: int, rank: int) -> str:
    if axis == 1:
        return "NCHW"
    if axis == rank - 1:
        return "NHWC"
    raise ValueError(
        "Unsupported data format, group norm only supports NCHW (channel axis 1) and NHWC "
        "(channel axis -1)."
    )


def _check_groups(inputs: tf.Tensor, groups: int | None, channels: int | None, axis: int) -> None:
    if channels is None:
        raise ValueError(f"Inputs {inputs.name} has undefined channel dimension: {axis}.")
    if groups is None or groups > channels:
        raise ValueError(f"Invalid groups {groups} for {channels} channels.")
    if channels % groups:
        raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")


def _warn_of_small_epsilon(name: str, epsilon: float) -> None:
    if epsilon < _SAFE_EPSILON:
        logging.getLogger("tensorflow").warning(
            "The epsilon value of %s is too low, which can lead to NaN values or floating point "
            "exceptions. To avoid this, increase it to a value higher than %s.",
            name,
            _SAFE_EPSILON,
        )
