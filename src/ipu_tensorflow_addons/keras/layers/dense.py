"""Dense layers: with products in parts, and with numbers of 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import f8_ops, math_ops

#: What scripts call the axes along which a product is divided -> what the operation calls them.
_AXES = {
    "input_columns": "a_columns",
    "input_rows_kernel_columns": "a_rows_b_columns",
    "kernel_rows": "b_rows",
}


class SerialDense(keras.layers.Dense):
    """Keras's, with a product that is divided to save memory; results are the same."""

    def __init__(
        self, units: int, serialization_factor: int, serialization_dimension: str, **kwargs: Any
    ) -> None:
        super().__init__(units, **kwargs)
        self.serialization_factor = int(serialization_factor)
        self.serialization_dimension = serialization_dimension
        if serialization_dimension not in _AXES:
            raise ValueError(
                f"Invalid serialization_dimension={serialization_dimension}, expected one of: "
                f"{', '.join(_AXES)}."
            )
        if self.serialization_factor < 1:
            raise ValueError(
                f"serialization_factor has to be at least 1, but was {serialization_factor}."
            )

    def call(self, inputs: Any) -> Any:
        outputs = math_ops.serialized_matmul(
            tf.cast(inputs, self.compute_dtype), self.kernel, self.serialization_factor,
            _AXES[self.serialization_dimension],
        )  # fmt: skip
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "serialization_factor": self.serialization_factor,
            "serialization_dimension": self.serialization_dimension,
        }


class Dense(keras.layers.Dense):
    """Keras's; with inputs from `ConvertToF8` its kernel has 8 bits too, and outputs are halves."""

    def __init__(
        self, units: int, kernel_format: Any = f8_ops.Format.F143, kernel_scale: int = 0,
        kernel_data_initializer: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(units, **kwargs)
        if not -32 <= kernel_scale <= 31:
            raise ValueError(
                f"`kernel_scale` should be in the range [-32, 31]. The passed scale was "
                f"{kernel_scale}."
            )
        self.kernel_format = kernel_format
        self.kernel_scale = kernel_scale
        self.kernel_data_initializer = kernel_data_initializer
        self.input_spec = None  # depends on the kind of inputs

    def build(self, input_shape: Any) -> None:
        if not isinstance(input_shape, list):
            super().build(input_shape)
            return
        size = int(input_shape[0][-1])
        self.kernel_data = self.add_weight(
            "kernel_data", (size, self.units), "uint8", self._initial_bytes(size), trainable=False
        )
        metadata = f8_ops.create_metadata(self.kernel_format, self.kernel_scale)
        self.kernel_metadata = self.add_weight(
            "kernel_metadata", (), "uint8", keras.initializers.Constant(metadata), trainable=False
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias", (self.units,), "float16", self.bias_initializer, self.bias_regularizer,
                constraint=self.bias_constraint,
            )  # fmt: skip
        self.built = True

    def _initial_bytes(self, size: int) -> Any:
        if self.kernel_data_initializer is not None:
            return self.kernel_data_initializer
        data = np.random.randint(0, 256, (size, self.units))
        return keras.initializers.Constant(np.where(data == 0x80, 0, data))  # 0x80 is NaN

    def call(self, inputs: Any) -> Any:
        if not isinstance(inputs, list):
            return super().call(inputs)
        kernel = f8_ops.QuarterTensor(self.kernel_data, self.kernel_metadata)
        outputs = f8_ops.f8_matmul(f8_ops.QuarterTensor(*inputs), kernel)
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)
