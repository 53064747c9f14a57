"""Batch norms whose statistics are those of a group of replicas instead of one.

`IPUConfig.norms.experimental.distributed_batch_norm_replica_group_size` asks for them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas, system

from .cross_replica_ops import cross_replica_mean


def group_size() -> int:
    """How many replicas share statistics in what is being traced."""
    config = system.config()
    if config is None or replicas.total() == 1:
        return 1
    return int(config.norms.experimental.distributed_batch_norm_replica_group_size)


def normalised(
    x: tf.Tensor, scale: Any, offset: Any, epsilon: float, data_format: str
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The normalised `x`, and mean and (unbiased) variance of the group's batches."""
    single, channels = tf.cast(x, tf.float32), _Channels(x, data_format)
    (mean,) = channels.means(single)
    deviation = single - channels.wide(mean)
    # The mean of the squares less the square of the mean would save a message, but can be below
    # zero where a channel hardly varies around a large mean.
    (variance,) = channels.means(tf.square(deviation))
    factor = tf.math.rsqrt(variance + epsilon) * scale
    y = deviation * channels.wide(factor) + channels.wide(offset)
    elements = tf.cast(tf.size(x) // tf.size(mean) * group_size(), tf.float32)
    unbiased = variance * elements / tf.maximum(elements - 1, 1)
    return tf.cast(y, x.dtype), mean, unbiased


def gradients(
    gradient: Any, x: Any, scale: Any, mean: Any, variance: Any, epsilon: float, data_format: str
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Of `x`, scale and offset, from the gradient of the normalised `x`."""
    x, channels = tf.convert_to_tensor(x), _Channels(x, data_format)
    gradient = tf.cast(gradient, tf.float32)
    centred = tf.cast(x, tf.float32) - channels.wide(mean)
    gradient_mean, product_mean = channels.means(gradient, gradient * centred)
    inverse = tf.math.rsqrt(variance + epsilon)
    inner = gradient - channels.wide(gradient_mean)
    inner -= centred * channels.wide(product_mean * tf.square(inverse))
    of_scale = channels.sum(gradient * centred) * inverse
    of_x = inner * channels.wide(scale * inverse)
    return tf.cast(of_x, x.dtype), of_scale, channels.sum(gradient)


class _Channels:
    """Reductions of tensors like `x` to one number for each channel, and the way back."""

    def __init__(self, x: Any, data_format: str) -> None:
        rank = len(x.shape)
        self._axis = 1 if data_format.startswith("NC") else rank - 1
        self._others = [axis for axis in range(rank) if axis != self._axis]
        self._shape = [-1 if axis == self._axis else 1 for axis in range(rank)]

    def sum(self, value: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(value, self._others)

    def means(self, *values: tf.Tensor) -> list[tf.Tensor]:
        """Over the group of replicas; they travel as one message."""
        own = tf.stack([tf.reduce_mean(value, self._others) for value in values])
        return tf.unstack(cross_replica_mean(own, group_size()), num=len(values))

    def wide(self, value: Any) -> tf.Tensor:
        return tf.reshape(tf.cast(value, tf.float32), self._shape)
