"""The operations of poprand under the names that upstream generates for them.

A dropout returns its output, the seed that it used and, where upstream keeps a reference to the
mask for the gradient, an opaque scalar: TensorFlow's own gradient keeps the mask itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def ipu_dropout_with_seed(
    input: Any, seed: Any, rate: float, scale: float, noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """Keeps a value with probability `rate` and multiplies it by `scale`."""
    with tf.name_scope(name or "IpuDropout"):
        values = tf.convert_to_tensor(input)
        seed = tf.cast(seed, tf.int32)
        shape = list(noise_shape) if noise_shape else tf.shape(values)
        kept = tf.random.stateless_uniform(shape, seed) < rate
        output = values * tf.where(kept, tf.cast(scale, values.dtype), tf.cast(0, values.dtype))
        return output, tf.identity(seed), tf.zeros([], values.dtype)


def ipu_dropout(
    input: Any, rate: float, scale: float, noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """With a new seed for each execution."""
    seed = tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
    return ipu_dropout_with_seed(input, seed, rate, scale, noise_shape, name)


def ipu_dropout_no_ref(
    input: Any, rate: float, scale: float, noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:  # fmt: skip
    return ipu_dropout(input, rate, scale, noise_shape, name)[:2]


def ipu_dropout_with_seed_no_ref(
    input: Any, seed: Any, rate: float, scale: float, noise_shape: Sequence[int] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:  # fmt: skip
    return ipu_dropout_with_seed(input, seed, rate, scale, noise_shape, name)[:2]
