"""Recurrent layers of popnn as classes that make their own variables.

Later releases moved them out of TensorFlow for the IPU; programs for earlier ones import them here.
Calls are `layer(inputs, initial_state=None, training=True)` on time-major sequences and return the
output sequence and the final state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import rnn_layers

__all__ = [
    "PopnnAUGRU",
    "PopnnDynamicGRU",
    "PopnnDynamicLSTM",
    "PopnnGRU",
    "PopnnLSTM",
]


class LSTMState(NamedTuple):
    """As TensorFlow's LSTMStateTuple: the cell first."""

    c: tf.Tensor
    h: tf.Tensor


class _PopnnRNN:
    """Variables "kernel" and "biases" in a scope of the layer's name."""

    gates: int
    default_name: str

    def __init__(
        self,
        num_units: int,
        dtype: Any = tf.float32,
        partials_dtype: Any = tf.float32,
        seed: int | None = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        return_state: bool = True,
        name: str | None = None,
        reset_after: bool = False,
        options: str = "{}",
        options_bwd: str = "{}",
    ) -> None:
        dtype = tf.as_dtype(dtype)
        if dtype not in (tf.float16, tf.float32):
            raise ValueError(f"Only support float16, float32, provided {dtype}")
        self._units = num_units
        self._dtype = dtype
        self._weights_initializer = weights_initializer or tf.compat.v1.glorot_uniform_initializer(
            seed
        )
        self._bias_initializer = bias_initializer or tf.compat.v1.zeros_initializer()
        self._return_state = return_state
        self._name = name or self.default_name
        self._reset_after = reset_after
        self._layer_options: dict[str, Any] = {
            "activation": activation,
            "recurrent_activation": recurrent_activation,
            "num_channels": num_units,
            "partials_dtype": partials_dtype,
            "options": options,
            "options_bwd": options_bwd,
        }
        self._variables: tuple[Any, Any] | None = None

    def build(self, input_shape: Any) -> None:
        """Makes the variables, for inputs whose last dimension is known."""
        if self._variables is not None:
            return
        input_size = tf.TensorShape(input_shape)[-1]
        if input_size is None:
            raise ValueError(
                f"The last dimension of the inputs to {self._name} must be known, but their shape "
                f"is {input_shape}."
            )
        biases = [self.gates, 2, self._units] if self._reset_after else [self.gates, self._units]
        with tf.compat.v1.variable_scope(self._name, use_resource=True):
            self._variables = (
                tf.compat.v1.get_variable(
                    "kernel",
                    [input_size + self._units, self.gates * self._units],
                    self._dtype,
                    self._weights_initializer,
                ),
                tf.compat.v1.get_variable("biases", biases, self._dtype, self._bias_initializer),
            )

    @property
    def trainable_variables(self) -> list[Any]:
        return list(self._variables or ())

    def _ready(self, inputs: Any) -> tuple[tf.Tensor, Any, Any, tf.Tensor]:
        """Inputs, kernel, biases and a state of zeros."""
        inputs = tf.convert_to_tensor(inputs, self._dtype)
        if inputs.shape.rank != 3:
            raise ValueError(
                f"{self._name} needs inputs of shape [time, batch, channels], not {inputs.shape}."
            )
        self.build(inputs.shape)
        assert self._variables is not None
        kernel, biases = self._variables
        return inputs, kernel, biases, tf.zeros([tf.shape(inputs)[1], self._units], self._dtype)

    def _result(self, output: tf.Tensor, state: Callable[[], Any]) -> Any:
        return (output, state()) if self._return_state else output


class PopnnLSTM(_PopnnRNN):
    """Its state is a pair (c, h)."""

    gates = 4
    default_name = "popnn_lstm"

    def __call__(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        return self._run(inputs, None, initial_state, training)

    def _run(self, inputs: Any, seq_len: Any, initial_state: Any, training: bool) -> Any:
        inputs, kernel, biases, zeros = self._ready(inputs)
        cell, hidden = (zeros, zeros) if initial_state is None else initial_state
        output, cell, _ = rnn_layers.lstm(
            inputs, hidden, cell, kernel, biases, is_training=training, seq_len=seq_len,
            preserve_final_state=True, **self._layer_options,
        )  # fmt: skip
        return self._result(output, lambda: LSTMState(cell, _last(output, seq_len)))


class PopnnDynamicLSTM(PopnnLSTM):
    """For sequences of different lengths."""

    def __call__(  # type: ignore[override]
        self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True
    ) -> Any:
        return self._run(inputs, seq_len, initial_state, training)


class PopnnGRU(_PopnnRNN):
    gates = 3
    default_name = "popnn_gru"

    def __call__(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        return self._run(inputs, None, None, initial_state, training)

    def _run(
        self, inputs: Any, seq_len: Any, att_score: Any, initial_state: Any, training: bool
    ) -> Any:
        inputs, kernel, biases, zeros = self._ready(inputs)
        output, _ = rnn_layers.gru(
            inputs, zeros if initial_state is None else initial_state, kernel, biases,
            is_training=training, seq_len=seq_len, att_score=att_score,
            reset_after=self._reset_after, **self._layer_options,
        )  # fmt: skip
        return self._result(output, lambda: _last(output, seq_len))


class PopnnDynamicGRU(PopnnGRU):
    """For sequences of different lengths."""

    def __call__(  # type: ignore[override]
        self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True,
        time_major: bool = True,
    ) -> Any:  # fmt: skip
        if time_major:
            return self._run(inputs, seq_len, None, initial_state, training)
        swapped = self._run(_swapped(inputs), seq_len, None, initial_state, training)
        if not self._return_state:
            return _swapped(swapped)
        return _swapped(swapped[0]), swapped[1]


class PopnnAUGRU(PopnnGRU):
    """With attention scores, [time, batch], that hold the state back."""

    default_name = "popnn_augru"

    def __call__(  # type: ignore[override]
        self, inputs: Any, seq_len: Any, attention_score: Any, initial_state: Any = None,
        training: bool = True, time_major: bool = True,
    ) -> Any:  # fmt: skip
        if not time_major:
            inputs, attention_score = _swapped(inputs), _swapped(attention_score)
        result = self._run(inputs, seq_len, attention_score, initial_state, training)
        if time_major:
            return result
        return (_swapped(result[0]), result[1]) if self._return_state else _swapped(result)


def _swapped(sequence: Any) -> tf.Tensor:
    rank = tf.convert_to_tensor(sequence).shape.rank
    return tf.transpose(sequence, [1, 0, *range(2, rank)])


def _last(output: tf.Tensor, seq_len: Any) -> tf.Tensor:
    if seq_len is None:
        return output[-1]
    places = tf.stack([tf.cast(seq_len, tf.int32) - 1, tf.range(tf.shape(output)[1])], axis=1)
    return tf.gather_nd(output, places)
