"""To and from numbers of 8 bits, which travel between layers as [data, metadata]."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import f8_ops


class ConvertToF8(keras.layers.Layer):
    """Takes data and what `f8_ops.create_metadata` makes."""

    def call(self, data: Any, metadata: Any, **_: Any) -> list[Any]:
        converted = f8_ops.convert_to_f8(data, metadata)
        return [converted.data, converted.metadata]


class ConvertFromF8(keras.layers.Layer):
    def __init__(self, dtype: Any = tf.half, **kwargs: Any) -> None:
        super().__init__(dtype=dtype, **kwargs)

    def call(self, inputs: Any, **_: Any) -> Any:
        return f8_ops.convert_from_f8(f8_ops.QuarterTensor(*inputs), dtype=self.dtype)
