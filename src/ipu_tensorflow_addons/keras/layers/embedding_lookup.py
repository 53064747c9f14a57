"""Embeddings."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import embedding_ops

from .ipu_layer import refuse


class Embedding(keras.layers.Layer):
    """Rows of a table, [batch, length] -> [batch, length, output_dim]; its gradient is dense."""

    def __init__(
        self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None, activity_regularizer: Any = None,
        embeddings_constraint: Any = None, mask_zero: bool = False, input_length: Any = None,
        serialization_factor: int = 1, **kwargs: Any,
    ) -> None:  # fmt: skip
        refuse(
            "Embedding",
            {
                "embeddings_regularizer": embeddings_regularizer,
                "activity_regularizer": activity_regularizer,
                "embeddings_constraint": embeddings_constraint,
                "mask_zero": mask_zero,
                "input_length": input_length,
            },
        )
        super().__init__(**{**kwargs, "autocast": False})
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.serialization_factor = serialization_factor

    def build(self, input_shape: Any) -> None:
        if len(input_shape) != 2:
            raise ValueError(
                "The input shape should be a tensor of shape [batch, input_length], but it is "
                f"{tuple(input_shape)}."
            )
        self.embeddings = self.add_weight(
            "embeddings", (self.input_dim, self.output_dim), initializer=self.embeddings_initializer
        )
        super().build(input_shape)

    def call(self, inputs: Any, inputs_are_sorted: bool = False, training: Any = None) -> Any:
        del training
        if not inputs.dtype.is_integer:  # such as those that `build` makes of a shape
            inputs = tf.cast(inputs, tf.int32)
        return embedding_ops.embedding_lookup(
            self.embeddings, inputs, self.serialization_factor, inputs_are_sorted, self.name
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        return tf.TensorShape(input_shape).concatenate(self.output_dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "serialization_factor": self.serialization_factor,
        }
