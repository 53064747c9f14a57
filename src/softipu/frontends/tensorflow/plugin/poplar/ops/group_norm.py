"""Group normalisation as popnn does it, forward; gradients are TensorFlow's.

With `strided_channel_grouping` channel c belongs to group c % groups, without to group
c // (channels / groups). Statistics are flat, [batch * groups].
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def training(
    inputs: Any, gamma: Any, beta: Any, data_format: str, epsilon: float, num_groups: int,
    strided_channel_grouping: bool = True, name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """Output, mean and inverse standard deviation of the inputs' own statistics."""
    with tf.name_scope(name or "PopnnGroupNormTraining"):
        grouped = _Grouped(inputs, data_format, num_groups, strided_channel_grouping)
        mean, inverse = grouped.statistics(epsilon)
        output = grouped.normalised(mean, inverse, gamma, beta)
        return output, tf.reshape(mean, [-1]), tf.reshape(inverse, [-1])


def statistics(
    inputs: Any, data_format: str, epsilon: float, num_groups: int,
    strided_channel_grouping: bool = True, name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:  # fmt: skip
    with tf.name_scope(name or "PopnnGroupNormStatistics"):
        grouped = _Grouped(inputs, data_format, num_groups, strided_channel_grouping)
        mean, inverse = grouped.statistics(epsilon)
        return tf.reshape(mean, [-1]), tf.reshape(inverse, [-1])


def inference(
    inputs: Any, gamma: Any, beta: Any, mean: Any, inv_std_dev: Any, data_format: str,
    epsilon: float, num_groups: int, strided_channel_grouping: bool = True,
    name: str | None = None,
) -> tf.Tensor:  # fmt: skip
    """Normalised with statistics that were made before; epsilon is already in them."""
    del epsilon
    with tf.name_scope(name or "PopnnGroupNormInference"):
        grouped = _Grouped(inputs, data_format, num_groups, strided_channel_grouping)
        return grouped.normalised(mean, inv_std_dev, gamma, beta)


class _Grouped:
    """Inputs with the channel axis split in two: the groups and the members of a group."""

    def __init__(self, inputs: Any, data_format: str, groups: int, strided: bool) -> None:
        if data_format not in ("NHWC", "NCHW"):
            raise ValueError(f"data_format is {data_format!r}; it must be 'NHWC' or 'NCHW'.")
        self._inputs = tf.convert_to_tensor(inputs)
        rank = self._inputs.shape.rank
        axis = 1 if data_format == "NCHW" else rank - 1
        channels = self._inputs.shape[axis]
        split = [channels // groups, groups] if strided else [groups, channels // groups]
        shape = tf.shape(self._inputs)
        self._values = tf.reshape(
            self._inputs, tf.concat([shape[:axis], split, shape[axis + 1 :]], 0)
        )
        self._group_axis = axis + 1 if strided else axis
        self._reduced = [a for a in range(1, rank + 1) if a != self._group_axis]
        self._groups = groups
        self._parameter_shape = [
            split[a - axis] if a in (axis, axis + 1) else 1 for a in range(rank + 1)
        ]

    def statistics(self, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.cast(self._values, tf.float32)
        mean, variance = tf.nn.moments(values, self._reduced, keepdims=True)
        inverse = tf.math.rsqrt(variance + epsilon)
        return tf.cast(mean, self._inputs.dtype), tf.cast(inverse, self._inputs.dtype)

    def normalised(self, mean: Any, inverse: Any, gamma: Any, beta: Any) -> tf.Tensor:
        per_group = [1] * len(self._parameter_shape)
        per_group[0], per_group[self._group_axis] = -1, self._groups
        mean, inverse, gamma, beta = (tf.cast(t, tf.float32) for t in (mean, inverse, gamma, beta))
        gain = tf.reshape(gamma, self._parameter_shape) * tf.reshape(inverse, per_group)
        offset = tf.reshape(beta, self._parameter_shape) - tf.reshape(mean, per_group) * gain
        output = tf.reshape(
            tf.cast(self._values, tf.float32) * gain + offset, tf.shape(self._inputs)
        )
        return tf.ensure_shape(tf.cast(output, self._inputs.dtype), self._inputs.shape)
