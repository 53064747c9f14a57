"""The recurrent layers of popnn, computed with stock TensorFlow.

Sequences are time-major, [time, batch, channels]. A kernel stacks the weights of the input over
those of the state, [input + channels, gates * channels]; gates come in Keras's order: input,
forget, candidate, output for an LSTM and update, reset, candidate for a GRU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import argument_options

#: Sequences up to this length are written out step by step, which is quicker to trace.
_UNROLLED = 8


def hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(x * tf.cast(0.2, x.dtype) + tf.cast(0.5, x.dtype), 0, 1)


ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "softmax": tf.nn.softmax,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "hard_sigmoid": hard_sigmoid,
}


def lstm(
    inputs: Any, input_h_state: Any, input_c_state: Any, kernel: Any, biases: Any, *,
    activation: str, recurrent_activation: str, num_channels: int, is_training: bool,
    partials_dtype: Any = tf.float32, seq_len: Any = None, preserve_final_state: bool = False,
    options: str = "{}", options_bwd: str = "{}", name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
    """Output sequence, final cell state and an opaque scalar in place of popnn's intermediates."""
    _check_options(options, options_bwd)
    warn_of_ignored(partials_dtype, options, options_bwd)
    activate, gate = _activation(activation), _activation(recurrent_activation)
    with tf.name_scope(name or "PopnnLstmLayer"):
        inputs = tf.convert_to_tensor(inputs)
        from_input, recurrent = _split_kernel(kernel, inputs.shape[-1], 4 * num_channels)
        projected = _project(inputs, from_input, tf.reshape(biases, [4 * num_channels]))

        def step(x: tf.Tensor, states: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            hidden, cell = states
            gates = tf.split(x + tf.matmul(hidden, recurrent), 4, axis=-1)
            cell = gate(gates[1]) * cell + gate(gates[0]) * activate(gates[2])
            hidden = gate(gates[3]) * activate(cell)
            return hidden, [hidden, cell]

        output, (_, cell) = _scan(step, projected, [input_h_state, input_c_state], seq_len)
        if seq_len is not None and not preserve_final_state:
            full = tf.cast(tf.equal(seq_len, tf.shape(inputs)[0]), cell.dtype)
            cell *= full[:, tf.newaxis]
        output, cell = _only_when_training("PopnnLstmLayer", is_training, [output, cell])
        return output, cell, tf.zeros([], output.dtype)


def gru(
    inputs: Any, initial_state: Any, kernel: Any, biases: Any, *, activation: str,
    recurrent_activation: str, num_channels: int, is_training: bool,
    partials_dtype: Any = tf.float32, reset_after: bool = False, seq_len: Any = None,
    att_score: Any = None, options: str = "{}", options_bwd: str = "{}", name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:  # fmt: skip
    """Output sequence and an opaque scalar; attention scores [time, batch] make it an AUGRU."""
    _check_options(options, options_bwd)
    warn_of_ignored(partials_dtype, options, options_bwd)
    activate, gate = _activation(activation), _activation(recurrent_activation)
    with tf.name_scope(name or "PopnnGRULayer"):
        inputs = tf.convert_to_tensor(inputs)
        from_input, recurrent = _split_kernel(kernel, inputs.shape[-1], 3 * num_channels)
        bias, recurrent_bias = _gru_biases(biases, num_channels, reset_after)
        projected = _project(inputs, from_input, bias)
        if att_score is not None:
            projected = tf.concat([projected, tf.expand_dims(att_score, -1)], axis=-1)
        to_gates, to_candidate = recurrent[:, : 2 * num_channels], recurrent[:, 2 * num_channels :]

        def step(x: tf.Tensor, states: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            (hidden,) = states
            x, attention = x[:, : 3 * num_channels], x[:, 3 * num_channels :]
            x_update, x_reset, x_candidate = tf.split(x, 3, axis=-1)
            if reset_after:
                update, reset, remembered = tf.split(
                    tf.matmul(hidden, recurrent) + recurrent_bias, 3, axis=-1
                )
                update, reset = gate(x_update + update), gate(x_reset + reset)
                remembered = reset * remembered
            else:
                update, reset = tf.split(tf.matmul(hidden, to_gates), 2, axis=-1)
                update, reset = gate(x_update + update), gate(x_reset + reset)
                remembered = tf.matmul(reset * hidden, to_candidate)
            if att_score is not None:
                update *= 1 - attention
            hidden = update * hidden + (1 - update) * activate(x_candidate + remembered)
            return hidden, [hidden]

        output, _ = _scan(step, projected, [initial_state], seq_len)
        (output,) = _only_when_training("PopnnGRULayer", is_training, [output])
        return output, tf.zeros([], output.dtype)


def _activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    if name not in ACTIVATIONS:
        raise ValueError(f"Unknown activation {name!r}: popnn has {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


def _check_options(*serialised: str) -> None:
    """The values that Poplar refuses; valid ones change memory use only."""
    for text in serialised:
        proportion = (json.loads(text) or {}).get("availableMemoryProportion")
        if proportion is not None and float(proportion) < 0:
            raise tf.errors.InternalError(
                None, None,
                f"availableMemoryProportion is {proportion}: "
                "Value must be greater than or equal to 0",
            )  # fmt: skip


def warn_of_ignored(partials_dtype: Any, options: Any, options_bwd: Any) -> None:
    """The options are as a layer got them: of one of popnn's, or of Keras's for IPUs."""
    argument_options.warn_of_ignored(
        argument_options.RECURRENT,
        partials_dtype=None if partials_dtype is None else tf.as_dtype(partials_dtype).name,
        options=options,
        options_bwd=options_bwd,
    )


def _split_kernel(kernel: Any, input_size: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    kernel = tf.convert_to_tensor(kernel)
    if kernel.shape.rank != 2 or kernel.shape[1] != width:
        raise ValueError(
            f"The kernel has shape {kernel.shape}; it needs to be [input size + channels, {width}]."
        )
    return kernel[:input_size], kernel[input_size:]


def _gru_biases(biases: Any, channels: int, reset_after: bool) -> tuple[tf.Tensor, Any]:
    biases = tf.convert_to_tensor(biases)
    expected = [3, 2, channels] if reset_after else [3, channels]
    if not biases.shape.is_compatible_with(expected):
        raise ValueError(f"The biases tensor needs to be of shape {expected}.")
    if not reset_after:
        return tf.reshape(biases, [3 * channels]), None
    return tf.reshape(biases[:, 0], [3 * channels]), tf.reshape(biases[:, 1], [3 * channels])


def _project(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """What the input adds to the gates: one product for all time steps."""
    return tf.tensordot(inputs, kernel, 1) + bias


def _scan(
    step: Callable[..., Any], inputs: tf.Tensor, states: list[Any], seq_len: Any
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Outputs are zero and states stand still after the end of a sequence."""
    from tf_keras import backend

    mask = None
    if seq_len is not None:
        steps = tf.range(tf.shape(inputs)[0])
        mask = steps[:, tf.newaxis] < tf.convert_to_tensor(seq_len)[tf.newaxis, :]
    _, output, states = backend.rnn(
        step,
        inputs,
        [tf.convert_to_tensor(state) for state in states],
        mask=mask,
        time_major=True,
        zero_output_for_mask=True,
        input_length=inputs.shape[0],
        unroll=(inputs.shape[0] or _UNROLLED + 1) <= _UNROLLED,
    )
    return output, states


def _only_when_training(op: str, is_training: bool, outputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """The outputs, with a gradient that refuses when the layer was made for inference."""
    if is_training:
        return outputs

    @tf.custom_gradient
    def inference_only(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        def refuse(*_: tf.Tensor) -> Any:
            raise ValueError(f"To use {op} in gradients, is_training must be set to True.")

        return [tf.identity(tensor) for tensor in tensors], refuse

    result = inference_only(*outputs)
    return list(result) if isinstance(result, list | tuple) else [result]
