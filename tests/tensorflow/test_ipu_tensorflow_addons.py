"""Graphcore's addons: layers and optimisers compute what Keras or a few lines of NumPy do."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import f8_ops, rnn_ops

from ipu_tensorflow_addons.keras import layers, optimizers
from softipu.errors import AddonNotThere

RANDOM = np.random.default_rng(3)


def numbers(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


# --- layers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_groups_of_channels_are_normalised(strided, axis):
    x = numbers(2, 6, 5, 6)
    made = layers.GroupNormalization(
        3, axis, gamma_initializer="ones", beta_initializer="zeros",
        strided_channel_grouping=strided,
    )(x).numpy()  # fmt: skip
    found, given = (np.moveaxis(array, axis, 0) for array in (made, x))
    for group in range(3):
        own = [c for c in range(6) if (c % 3 if strided else c // 2) == group]
        for sample in range(2):
            values = given[own, sample]
            expected = (values - values.mean()) / np.sqrt(values.var() + 1e-3)
            np.testing.assert_allclose(found[own, sample], expected, atol=1e-5)


def test_a_group_norm_refuses_what_does_not_divide():
    with pytest.raises(ValueError, match="6 channels is not commensurate with 4 groups"):
        layers.GroupNorm(4)(numbers(2, 6))
    with pytest.raises(ValueError, match="only supports NCHW"):
        layers.GroupNorm(2, 2)(numbers(2, 4, 4, 4, 4))


def test_an_instance_norm_is_a_group_norm_of_single_channels():
    x = numbers(2, 4, 4, 3)
    made = layers.InstanceNormalization(center=False, scale=False)(x)
    expected = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-3)
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_a_layer_norm_is_that_of_keras_less_what_ipus_lack():
    x = numbers(2, 3, 8)
    np.testing.assert_allclose(
        layers.LayerNorm(axis=[1, 2], epsilon=1e-5)(x, training=True),
        keras.layers.LayerNormalization(axis=[1, 2], epsilon=1e-5)(x), atol=1e-6,
    )  # fmt: skip
    with pytest.raises(NotImplementedError, match="argument gamma_constraint"):
        layers.LayerNormalization(gamma_constraint="non_neg")


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("options", [{}, {"return_sequences": True, "return_state": True}])
def test_recurrent_layers_are_those_of_keras(kind, options):
    x = numbers(2, 7, 3)
    ours = getattr(layers, f"Popnn{kind}")(5, **options)
    theirs = getattr(keras.layers, kind)(5, **options)
    theirs(x)
    ours.build(x.shape)
    ours.set_weights(theirs.get_weights())
    for found, expected in zip(
        tf.nest.flatten(ours(x)), tf.nest.flatten(theirs(x)), strict=True
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [w.shape for w in ours.weights] == [
        ours.kernel.shape, ours.recurrent_kernel.shape, ours.biases.shape
    ]  # fmt: skip


def test_recurrent_layers_refuse_what_ipus_lack_and_take_what_changes_nothing():
    with pytest.raises(ValueError, match="LSTM layer does not support recurrent_dropout"):
        layers.LSTM(4, recurrent_dropout=0.5)
    with pytest.raises(ValueError, match="GRU layer does not support use_bias"):
        layers.GRU(4, use_bias=False)
    with pytest.raises(ValueError, match="'elu' as an activation"):
        layers.LSTM(4, activation="elu")
    with pytest.raises(NotImplementedError, match="call argument mask"):
        layers.LSTM(4)(numbers(2, 3, 4), mask=tf.ones((2, 3), tf.bool))
    layers.LSTM(4, options={"availableMemoryProportion": "0.1"}, partials_dtype=tf.float16)


def test_a_seed_decides_the_weights_and_the_dropout_of_a_recurrent_layer():
    x = numbers(2, 3, 64)

    def outputs(seed):
        layer = layers.LSTM(8, dropout=0.5, seed=1, dropout_seed=(1, seed))
        return layer(x, training=True).numpy()

    np.testing.assert_array_equal(outputs(1), outputs(1))
    assert not np.array_equal(outputs(1), outputs(2))


def test_a_dropout_with_a_seed_drops_the_same_in_training_only():
    x = np.ones((40, 40), np.float32)
    once, again = (layers.Dropout(0.25, seed=[1, 2])(x, training=True) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert 0.15 < np.mean(once == 0) < 0.35
    np.testing.assert_array_equal(layers.Dropout(0.25)(x, training=False), x)


def test_an_embedding_looks_rows_up_and_has_a_dense_gradient():
    layer = layers.Embedding(12, 4, serialization_factor=3)
    with tf.GradientTape() as tape:
        rows = layer(tf.constant([[3, 1], [1, 0]]))
        total = tf.reduce_sum(rows)
    np.testing.assert_array_equal(rows[1, 0], layer.embeddings[1])
    gradient = tape.gradient(total, layer.embeddings)
    assert isinstance(gradient, tf.Tensor)
    assert gradient.numpy()[:, 0].tolist() == [1, 2, 0, 1] + [0] * 8
    with pytest.raises(NotImplementedError, match="mask_zero"):
        layers.Embedding(12, 4, mask_zero=True)


def test_an_embedding_can_be_built_from_a_shape():
    model = keras.Sequential([layers.Embedding(12, 4)])
    model.build((2, 3))
    rows = model(tf.constant([[0.0, 11.0, 5.0]]))
    np.testing.assert_array_equal(rows[0], model.layers[0].embeddings.numpy()[[0, 11, 5]])


def test_a_product_in_parts_is_the_product():
    x = numbers(4, 6)
    for axis in ("input_columns", "input_rows_kernel_columns", "kernel_rows"):
        serial = layers.SerialDense(8, 2, axis, activation="relu")
        found = serial(x)
        expected = np.maximum(x @ serial.kernel.numpy() + serial.bias.numpy(), 0)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(ValueError, match="Invalid serialization_dimension=rows"):
        layers.SerialDense(8, 2, "rows")


def test_numbers_of_8_bits_go_through_a_dense_layer():
    x = np.array([[1.0, 2.0], [3.0, -1.0]], np.float16)
    packed = layers.ConvertToF8()(x, metadata=f8_ops.create_metadata(f8_ops.Format.F143))
    np.testing.assert_array_equal(layers.ConvertFromF8()(packed), x)
    kernel = f8_ops.convert_to_f8(
        tf.constant([[1.0, 0.5], [2.0, -1.0]], tf.float16),
        f8_ops.create_metadata(f8_ops.Format.F143),
    )
    dense = layers.Dense(2, kernel_data_initializer=keras.initializers.Constant(kernel.data))
    np.testing.assert_allclose(dense(packed), [[5, -1.5], [1, 2.5]])
    assert layers.Dense(3)(x).shape == (2, 3)


def test_ctc_layers_agree_on_a_clear_path():
    labels = np.array([[1, 2]], np.int32)
    times = np.array([0, 1, 0, 2, 0])
    logits = 9.0 * np.eye(3, dtype=np.float32)[times][:, np.newaxis]
    lengths = tf.constant([5])
    loss = layers.CTCLoss(from_logits=True)(labels, logits, tf.constant([2]), lengths)
    assert loss.shape == (1,)
    assert float(loss[0]) < 0.1
    found = layers.CTCPredictionsLayer(beam_width=10, top_paths=2, from_logits=True)(
        logits, lengths
    )
    assert found.numpy().tolist() == [[1, 2, 0, 0, 0]]


def test_layers_come_back_from_their_configuration():
    for layer in (
        layers.GroupNorm(4), layers.InstanceNorm(), layers.LayerNorm(), layers.LSTM(3, seed=1),
        layers.GRU(3, reset_after=False), layers.Dropout(0.1, seed=[1, 2]), layers.Embedding(3, 2),
        layers.SerialDense(4, 2, "kernel_rows"), layers.CTCLoss(), layers.CTCInferenceLayer(),
        layers.AssumeEqualAcrossReplicas(True), layers.RecomputationCheckpoint(),
    ):  # fmt: skip
        again = type(layer).from_config(layer.get_config())
        assert again.get_config() == layer.get_config()


def test_a_model_of_these_layers_trains_on_ipus(ipus):
    tokens = RANDOM.integers(0, 20, (64, 6)).astype(np.int32)
    targets = (tokens[:, :1] > 9).astype(np.float32)
    with ipus(2).scope():
        inputs = keras.Input((6,), batch_size=8, dtype=tf.int32)
        with keras.ipu.PipelineStage(0):
            x = layers.Embedding(20, 8)(inputs)
            x = layers.RecomputationCheckpoint()(x)
        with keras.ipu.PipelineStage(1):
            x = layers.LayerNormalization()(layers.LSTM(8)(x))
            x = layers.AssumeEqualAcrossReplicas()(layers.Dense(1, activation="sigmoid")(x))
        model = keras.Model(inputs, x)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        optimizer = optimizers.AdamIpuOptimizer(0.02, m_dtype=tf.float16)
        model.compile(optimizer, "binary_crossentropy", steps_per_execution=8)
        losses = model.fit(tokens, targets, batch_size=8, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


# --- optimisers -----------------------------------------------------------------------------------


def steps(optimizer, count=3):
    """A variable after each step, and the gradients."""
    variable = tf.Variable([1.0, -2.0, 3.0], name="weights")
    gradients = [np.array([0.1, 0.2, -0.3], np.float32) * (i + 1) for i in range(count)]
    seen = []
    for gradient in gradients:
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        seen.append(variable.numpy())
    return seen, gradients, variable


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_gradient_descent_is_that_of_keras(options):
    found, _, _ = steps(optimizers.SGDIpuOptimizer(0.1, **options))
    expected, _, _ = steps(keras.optimizers.SGD(0.1, **options))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("debiasing", [True, False])
@pytest.mark.parametrize("amsgrad", [True, False])
@pytest.mark.parametrize("outlined", [True, False])
def test_adam_follows_its_formula(debiasing, amsgrad, outlined):
    optimizer = optimizers.AdamIpuOptimizer(
        0.1, amsgrad=amsgrad, debiasing=debiasing, outline_apply_gradients=outlined
    )
    found, gradients, _ = steps(optimizer)
    w, m, v, largest = np.array([1.0, -2.0, 3.0]), 0.0, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        bias = (1 - 0.9**t, 1 - 0.999**t) if debiasing else (1.0, 1.0)
        second = v / bias[1]
        largest = np.maximum(largest, second)
        w = w - 0.1 * m / bias[0] / (np.sqrt(largest if amsgrad else second) + 1e-7)
        np.testing.assert_allclose(found[t - 1], w, rtol=1e-4)


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("excluded", [None, ["weig"]])
def test_lamb_follows_its_formula(clip, excluded):
    optimizer = optimizers.LAMBIpuOptimizer(
        0.1, weight_decay_rate=0.05, weight_norm_clip=clip, exclude_from_weight_decay=excluded
    )
    found, gradients, _ = steps(optimizer)
    w, m, v = np.array([1.0, -2.0, 3.0]), 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        change = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
        change = change + (0 if excluded else 0.05 * w)
        norm = np.linalg.norm(w) if clip is None else min(np.linalg.norm(w), clip)
        w = w - 0.1 * norm / np.linalg.norm(change) * change
        np.testing.assert_allclose(found[t - 1], w, rtol=1e-4)


def test_state_has_the_type_that_was_asked_for_and_is_saved():
    for optimizer, slots in (
        (optimizers.SGDIpuOptimizer(momentum=0.9, momentum_accum_dtype=tf.float16), ["momentum"]),
        (optimizers.AdamIpuOptimizer(m_dtype=tf.float16, v_dtype=tf.float16), ["m", "v"]),
        (optimizers.LAMBIpuOptimizer(m_dtype=tf.float16, v_dtype=tf.float16), ["m", "v"]),
    ):
        seen, _, variable = steps(optimizer)
        assert np.isfinite(seen).all()
        for slot in slots:
            assert optimizer.get_slot(variable, slot).dtype == tf.float16
        assert len(optimizer.get_weights()) == 1 + len(slots)
        again = type(optimizer).from_config(optimizer.get_config())
        assert again.get_config() == optimizer.get_config()


def test_sparse_gradients_are_refused_with_the_way_out():
    variable = tf.Variable(tf.ones((4, 2)))
    sparse = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]), tf.constant([4, 2]))
    for optimizer in (
        optimizers.SGDIpuOptimizer(), optimizers.AdamIpuOptimizer(), optimizers.LAMBIpuOptimizer()
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match="layers.Embedding"):
            optimizer.apply_gradients([(sparse, variable)])


# --- names ----------------------------------------------------------------------------------------


def test_layers_of_tensorflow_1_are_those_of_rnn_ops():
    from ipu_tensorflow_addons.v1 import layers as old

    assert old.PopnnLSTM is rnn_ops.PopnnLSTM
    assert old.rnn_ops.PopnnAUGRU is rnn_ops.PopnnAUGRU


@pytest.mark.parametrize(
    ("statement", "way_out"),
    [
        ("from ipu_tensorflow_addons.keras.layers import EffectiveTransformer", "MultiHead"),
        ("import ipu_tensorflow_addons.saved_model_tool.converter", "export_for_ipu_serving"),
        ("import ipu_tensorflow_addons.keras.experimental.auto_pipeline", "PipelineStage"),
    ],
)
def test_what_is_missing_says_what_to_use(statement, way_out):
    with pytest.raises(AddonNotThere, match=f"(?s)softipu has no ipu_tensorflow.*{way_out}"):
        exec(statement)
    assert not hasattr(layers, "Nonsense")


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        ("keras.layers", "Lstm", "LSTM"),
        ("keras.optimizers", "AdamIPUOptimizer", "AdamIpuOptimizer"),
        ("v1.layers", "PopnnDynamicLstm", "PopnnDynamicLSTM"),
    ],
)
def test_a_misspelt_name_gets_the_one_that_is_meant(module, name, meant):
    module = importlib.import_module(f"ipu_tensorflow_addons.{module}")
    with pytest.raises(AttributeError, match=rf"attribute '{name}'\. Did you mean .*`{meant}`"):
        getattr(module, name)


def test_the_addons_alone_make_keras_2_the_keras_of_a_program(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from tensorflow.keras.layers import Dense\n"
        "from ipu_tensorflow_addons.keras.layers import LSTM\n"
        "import tensorflow as tf\n"
        "assert issubclass(LSTM, tf.keras.layers.Layer)\n"
        "print(Dense.__module__.split('.')[0], tf.keras.ipu.PipelineStage.__name__)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    ended = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == ["tf_keras", "PipelineStage"]
