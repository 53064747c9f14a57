"""Operations of popnn against plain TensorFlow: activations, losses, norms, recurrent layers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import gen_popnn_ops
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import nn_ops, normalization_ops, rnn_ops

#: As long as the layers write out step by step, and longer.
LENGTHS = (5, 12)
SEQUENCE = tf.constant(np.random.default_rng(0).normal(size=[5, 3, 4]), tf.float32)
GATED = {"activation": "tanh", "recurrent_activation": "sigmoid", "num_channels": 6}


def normal(*shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def value_and_gradients(function, *inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
        loss = tf.reduce_sum(tf.square(output))
    return [output, *tape.gradient(loss, inputs)]


def assert_same(ours, theirs, tolerance=1e-5):
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("ours", "reference"),
    [
        (nn_ops.gelu, lambda x: tf.nn.gelu(x, approximate=True)),
        (lambda x: nn_ops.gelu(x, approximate=False), lambda x: tf.nn.gelu(x)),
        (nn_ops.hard_sigmoid, lambda x: tf.minimum(tf.maximum(0.2 * x + 0.5, 0.0), 1.0)),
        (nn_ops.swish, lambda x: x * tf.sigmoid(x)),
        (nn_ops.softmax, tf.nn.softmax),
    ],
)
def test_activations_and_their_gradients_are_the_textbook_ones(ours, reference):
    x = normal(7, 9) * 3
    assert_same(value_and_gradients(ours, x), value_and_gradients(reference, x))


def test_gelu_of_large_halves_has_finite_gradients():
    x = tf.constant([-250.0, 250.0], tf.float16)
    output, gradient = value_and_gradients(nn_ops.gelu, x)
    np.testing.assert_array_equal(output, [0, 250])
    np.testing.assert_array_equal(gradient, [0, 500])


def test_modules_are_attributes_of_ipu():
    assert ipu.nn_ops is nn_ops
    assert ipu.normalization_ops is normalization_ops


def test_multi_conv_returns_what_the_function_returns_and_takes_a_dict_of_options():
    decorated = nn_ops.multi_conv(lambda a, b: (a + b, a - b))
    assert [t.numpy() for t in decorated(tf.constant(3), tf.constant(2))] == [5, 1]
    with pytest.raises(TypeError, match="to be a `dict`"):
        nn_ops.multi_conv(options="perConvReservedTiles")(lambda a: a)(1)


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_group_norm_groups_channels_as_asked(strided, data_format):
    groups, channels = 2, 6
    x, gamma, beta = normal(3, 4, 5, channels), normal(channels, seed=2), normal(channels, seed=3)

    def reference(x, gamma, beta):
        group_of = [c % groups if strided else c // (channels // groups) for c in range(channels)]
        columns = []
        for channel in range(channels):
            members = [c for c in range(channels) if group_of[c] == group_of[channel]]
            mean, variance = tf.nn.moments(tf.gather(x, members, axis=-1), [1, 2, 3], keepdims=True)
            normalised = (x[..., channel : channel + 1] - mean) / tf.sqrt(variance + 1e-3)
            columns.append(normalised * gamma[channel] + beta[channel])
        return tf.concat(columns, -1)

    def ours(x, gamma, beta):
        if data_format == "NCHW":
            x = tf.transpose(x, [0, 3, 1, 2])
        output, mean, inverse = gen_popnn_ops.popnn_group_norm_training(
            x, gamma, beta, data_format=data_format, epsilon=1e-3, num_groups=groups,
            strided_channel_grouping=strided,
        )  # fmt: skip
        again = gen_popnn_ops.popnn_group_norm_inference(
            x, gamma, beta, mean, inverse, data_format=data_format, epsilon=1e-3,
            num_groups=groups, strided_channel_grouping=strided,
        )  # fmt: skip
        assert mean.shape == [3 * groups]
        np.testing.assert_allclose(output, again, atol=1e-5)
        return tf.transpose(output, [0, 2, 3, 1]) if data_format == "NCHW" else output

    assert_same(
        value_and_gradients(ours, x, gamma, beta), value_and_gradients(reference, x, gamma, beta),
        1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
def test_layer_and_instance_norm_are_group_norms_of_one_and_of_all(training):
    x = normal(2, 3, 4, 5)
    layer = normalization_ops.layer_norm(x, center=False, scale=False, training=training)
    mean, variance = tf.nn.moments(x, [1, 2, 3], keepdims=True)
    np.testing.assert_allclose(layer, (x - mean) / tf.sqrt(variance + 1.53e-5), atol=1e-5)
    instance = normalization_ops.instance_norm(x, center=False, scale=False, training=training)
    mean, variance = tf.nn.moments(x, [1, 2], keepdims=True)
    np.testing.assert_allclose(instance, (x - mean) / tf.sqrt(variance + 1.53e-5), atol=1e-4)


def test_norms_work_in_half_precision():
    x = tf.cast(normal(2, 8, 8, 4) * 50 + 200, tf.float16)
    output = normalization_ops.group_norm(x, groups=2, center=False, scale=False)
    assert output.dtype == tf.float16
    np.testing.assert_allclose(tf.math.reduce_std(tf.cast(output, tf.float32)), 1, atol=1e-2)


def keras_layer(kind, kernel, bias, **options):
    layer = kind(6, time_major=True, return_sequences=True, **options)
    layer.build((5, 3, 4))
    layer.set_weights([kernel[:4], kernel[4:], bias])
    return layer


@pytest.mark.parametrize("length", LENGTHS)
def test_lstm_has_keras_gate_order_and_gradients(length):
    sequence = normal(length, 3, 4, seed=9)
    state, cell = normal(3, 6, seed=2), normal(3, 6, seed=3)

    def ours(x, kernel, biases):
        return gen_popnn_ops.popnn_lstm_layer(
            x, state, cell, kernel, biases, is_training=True, **GATED
        )[0]

    def theirs(x, kernel, biases):
        hidden, memory, outputs = state, cell, []
        for step in tf.unstack(x):
            z = tf.concat([step, hidden], 1) @ kernel + tf.reshape(biases, [-1])
            i, f, c, o = tf.split(z, 4, axis=1)
            memory = tf.sigmoid(f) * memory + tf.sigmoid(i) * tf.tanh(c)
            hidden = tf.sigmoid(o) * tf.tanh(memory)
            outputs.append(hidden)
        return tf.stack(outputs)

    weights = (sequence, normal(10, 24), normal(4, 6))
    assert_same(value_and_gradients(ours, *weights), value_and_gradients(theirs, *weights), 1e-4)
    keras = keras_layer(tf.keras.layers.LSTM, weights[1], tf.reshape(weights[2], [-1]))
    np.testing.assert_allclose(
        ours(*weights), keras(sequence, initial_state=[state, cell]), atol=1e-5
    )


@pytest.mark.parametrize("length", LENGTHS)
def test_dynamic_lstm_stops_at_the_end_of_each_sequence(length):
    sequences = normal(length, 3, 4, seed=9)
    state, kernel, biases = tf.zeros([3, 6]), normal(10, 24), normal(4, 6)
    lengths = [length, 2, 3]
    run = {"is_training": False, **GATED}
    full, _, _ = gen_popnn_ops.popnn_lstm_layer(sequences, state, state, kernel, biases, **run)
    cells = []
    for preserve in (True, False):
        output, cell, _ = gen_popnn_ops.popnn_dynamic_lstm_layer(
            sequences, state, state, kernel, biases, seq_len=lengths,
            preserve_final_state=preserve, **run,
        )  # fmt: skip
        cells.append(cell.numpy())
    for sequence, end in enumerate(lengths):
        np.testing.assert_allclose(output[:end, sequence], full[:end, sequence], atol=1e-6)
        assert not np.any(output[end:, sequence])
    short = gen_popnn_ops.popnn_lstm_layer(sequences[:2], state, state, kernel, biases, **run)[1]
    np.testing.assert_allclose(cells[0][1], short[1], atol=1e-6)
    assert not np.any(cells[1][1:])
    np.testing.assert_allclose(cells[0][0], cells[1][0])


@pytest.mark.parametrize("reset_after", [False, True])
def test_gru_has_keras_gate_order(reset_after):
    kernel, state = normal(10, 18), normal(3, 6)
    bias = normal(2, 18) if reset_after else normal(18)
    keras = keras_layer(tf.keras.layers.GRU, kernel, bias, reset_after=reset_after)
    biases = (
        tf.transpose(tf.reshape(bias, [2, 3, 6]), [1, 0, 2])
        if reset_after
        else tf.reshape(bias, [3, 6])
    )
    output, _ = gen_popnn_ops.popnn_gru_layer(
        SEQUENCE, state, kernel, biases, is_training=True, reset_after=reset_after, **GATED
    )
    np.testing.assert_allclose(output, keras(SEQUENCE, initial_state=state), atol=1e-5)


def test_full_attention_overwrites_and_none_leaves_a_gru():
    kernel, biases, state = normal(10, 18), normal(3, 6), normal(3, 6)
    run = {"is_training": False, "seq_len": [5, 5, 5], **GATED}
    plain, _ = gen_popnn_ops.popnn_dynamic_gru_layer(SEQUENCE, state, kernel, biases, **run)
    none, _ = gen_popnn_ops.popnn_augru_layer(
        SEQUENCE, state, kernel, biases, att_score=tf.zeros([5, 3]), **run
    )
    full, _ = gen_popnn_ops.popnn_augru_layer(
        SEQUENCE, state, kernel, biases, att_score=tf.ones([5, 3]), **run
    )
    np.testing.assert_allclose(none, plain, atol=1e-6)
    assert np.abs(full - plain).max() > 1e-2


def test_a_layer_made_for_inference_refuses_gradients():
    kernel = normal(10, 18)
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        output, _ = gen_popnn_ops.popnn_gru_layer(
            SEQUENCE, tf.zeros([3, 6]), kernel, tf.zeros([3, 6]), is_training=False, **GATED
        )
    with pytest.raises(ValueError, match="is_training must be set to True"):
        tape.gradient(output, kernel)


def test_negative_memory_proportion_is_refused():
    with pytest.raises(tf.errors.InternalError, match="greater than or equal to 0"):
        gen_popnn_ops.popnn_gru_layer(
            SEQUENCE, tf.zeros([3, 6]), normal(10, 18), tf.zeros([3, 6]), is_training=False,
            options='{"availableMemoryProportion": -1}', **GATED,
        )  # fmt: skip


def test_recurrent_classes_make_variables_and_return_the_last_state():
    with tf.Graph().as_default():
        layer = rnn_ops.PopnnDynamicLSTM(6, name="cells")
        output, state = layer(SEQUENCE.numpy(), tf.constant([5, 2, 3]))
        names = [variable.op.name for variable in layer.trainable_variables]
        assert names == ["cells/kernel", "cells/biases"]
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            output, state = session.run([output, state])
    np.testing.assert_allclose(state.h[1], output[1, 1])
    assert state.c.shape == (3, 6)


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_losses_agree_with_each_other_and_with_tensorflow(blank):
    logits = normal(6, 2, 5)
    labels = tf.constant([[1, 3, 4], [3, 1, 0]])
    lengths = {"label_length": [3, 2], "blank_index": blank}
    from_logits = value_and_gradients(
        lambda x: nn_ops.ctc_loss_v2(labels, x, logit_length=[6, 5], **lengths), logits
    )
    from_probabilities = value_and_gradients(
        lambda x: nn_ops.ctc_loss_with_log_probs(
            labels, tf.nn.log_softmax(x), data_length=[6, 5], **lengths
        ),
        logits,
    )
    expected = value_and_gradients(
        lambda x: tf.nn.ctc_loss(labels, x, logit_length=[6, 5], **lengths), logits
    )
    assert_same(from_logits, expected)
    assert_same(from_probabilities, expected, 1e-4)


def test_beam_search_finds_the_same_paths_wherever_the_blank_is():
    logits = normal(8, 2, 5) * 2
    last = nn_ops.ctc_beam_search_decoder(logits, [8, 6], top_paths=2, beam_width=20)
    first = nn_ops.ctc_beam_search_decoder(
        tf.roll(logits, 1, axis=-1), [8, 6], top_paths=2, beam_width=20, blank_index=0
    )
    np.testing.assert_allclose(last[0], first[0], atol=1e-5)
    np.testing.assert_array_equal(last[1], first[1])
    np.testing.assert_array_equal((last[2] + 1) % 5, first[2])
    (path, *_), score = tf.nn.ctc_beam_search_decoder(logits, [8, 6], beam_width=20)
    expected = tf.sparse.to_dense(path, default_value=4)
    np.testing.assert_array_equal(last[2][:, 0, : expected.shape[1]], expected)
    np.testing.assert_allclose(last[0][:, :1], score, atol=1e-5)


def test_sampled_losses_keep_accidental_hits_and_have_dense_gradients():
    weights, biases, inputs = normal(7, 4), normal(7), normal(3, 4)
    labels = tf.constant([[0], [1], [2]])
    sampled = (tf.constant([1, 0, 2, 3], tf.int64), tf.fill([3, 1], 0.5), tf.fill([4], 0.5))
    arguments = {"num_sampled": 4, "num_classes": 7, "sampled_values": sampled}
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = nn_ops.sampled_softmax_loss(weights, biases, labels, inputs, **arguments)
    assert isinstance(tape.gradient(loss, weights), tf.Tensor)
    expected = tf.nn.sampled_softmax_loss(
        weights, biases, labels, inputs, remove_accidental_hits=False, **arguments
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(
        nn_ops.nce_loss(weights, biases, labels, inputs, **arguments),
        tf.nn.nce_loss(weights, biases, labels, inputs, **arguments),
        rtol=1e-5,
    )
