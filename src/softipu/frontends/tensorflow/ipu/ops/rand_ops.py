"""Random operations of poprand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import gen_poprand_ops


def dropout(
    x: Any,
    rate: float = 0.5,
    noise_shape: Sequence[int] | None = None,
    seed: Any = None,
    name: str | None = None,
    **kwargs: Any,
) -> tf.Tensor:
    """Zeroes values with probability `rate` and scales the others so that the mean stays.

    `seed` is a pair of 32-bit integers; without one each execution draws its own. `ref`, which
    says how upstream keeps the mask for the gradient, is accepted and changes nothing.
    """
    kwargs.pop("ref", None)
    if kwargs:
        raise TypeError(f"dropout() got unexpected arguments: {', '.join(sorted(kwargs))}.")
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"The rate must be in the range [0, 1), but was {rate}")
    x = tf.convert_to_tensor(x)
    if noise_shape:
        _check_noise_shape(x.shape.as_list(), noise_shape)
    keep = {"rate": 1 - rate, "scale": 1 / (1 - rate), "noise_shape": noise_shape, "name": name}
    if seed is None:
        return gen_poprand_ops.ipu_dropout(x, **keep)[0]
    seed = tf.convert_to_tensor(seed)
    if seed.shape != [2]:
        raise ValueError(f"Expected the seed to have a shape [2], but got {seed.shape}.")
    return gen_poprand_ops.ipu_dropout_with_seed(x, seed, **keep)[0]


def _check_noise_shape(shape: list[int], noise_shape: Sequence[int]) -> None:
    if len(shape) != len(noise_shape):
        raise ValueError("The length of noise_shape must equal the rank of x.")
    for size, noise in zip(shape, noise_shape, strict=True):
        if noise not in (1, size):
            raise ValueError(f"Dimension mismatch, {size} != {noise}.")
