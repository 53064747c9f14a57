"""Dropout with a seed for each layer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import rand_ops


class Dropout(keras.layers.Layer):
    """Zeroes inputs with probability `rate` in training; `seed` is a pair of 32-bit integers."""

    def __init__(self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any):
        self.ref = kwargs.pop("ref", True)
        super().__init__(**kwargs)
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed

    def call(self, inputs: Any, training: Any = None) -> Any:
        def dropped() -> Any:
            return rand_ops.dropout(
                inputs, self.rate, self.noise_shape, self.seed, self.name, ref=self.ref
            )

        return keras.backend.in_train_phase(dropped, lambda: tf.identity(inputs), training)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        own = {"rate": self.rate, "noise_shape": self.noise_shape, "seed": self.seed}
        return {**super().get_config(), **own, "ref": self.ref}
