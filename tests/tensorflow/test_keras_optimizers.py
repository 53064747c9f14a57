"""Keras optimisers: those of TensorFlow 2.6, gradient accumulation, automatic loss scaling."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from tf_keras.ipu.layers import CaptureActivationGradients, CaptureUpstreamGradients
from tf_keras.ipu.optimizers import (
    ALSGradientAccumulationOptimizer,
    ALSOptimizer,
    ALSOptimizerAdam,
    ALSOptimizerRMSProp,
    ALSOptimizerSGD,
    GradientAccumulationOptimizer,
    captured,
)

from softipu.frontends.tensorflow import legacy_optimizers

legacy = tf_keras.optimizers.legacy
_START = np.array([1.0, -2.0, 3.0], np.float32)
_TARGETS = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)


def trained(optimizer, targets=_TARGETS, dtype=tf.float32):
    """Weights after one step for each target, in a traced function."""
    variable = tf.Variable(_START, dtype=dtype)

    @tf.function
    def step(target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.cast(variable, tf.float32) - target) ** 1.25)
        optimizer.minimize(loss, [variable], tape=tape)

    for target in targets:
        step(target)
    return variable.numpy()


# -- the optimisers of TensorFlow 2.6 -------------------------------------------------------------


@pytest.mark.parametrize("module", [tf.keras.optimizers, tf_keras.optimizers])
def test_names_in_keras_mean_the_classes_of_2_6(module):
    for name in legacy_optimizers.NAMES:
        assert getattr(module, name) is getattr(legacy, name)
    assert module.SGD(lr=0.25, decay=0.5).get_config()["learning_rate"] == 0.25
    assert isinstance(module.get("adam"), legacy.Adam)
    assert isinstance(module.deserialize({"class_name": "RMSprop", "config": {}}), legacy.RMSprop)


def test_a_model_compiled_with_a_name_gets_a_legacy_optimizer():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert isinstance(model.optimizer, legacy.SGD)
    model.optimizer.lr = 0.5
    assert model.optimizer.get_config()["learning_rate"] == 0.5


def test_installing_twice_changes_nothing():
    before = tf_keras.src.optimizers.get
    legacy_optimizers.install()
    assert tf_keras.src.optimizers.get is before


# -- gradient accumulation ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "factor"), [("SUM", 1.0), ("MEAN", 0.25), ("RUNNING_MEAN", 0.25)]
)
@pytest.mark.parametrize(
    "make", [lambda: legacy.SGD(0.05, momentum=0.9), lambda: legacy.Adam(0.05)]
)
def test_four_mini_batches_make_one_update(method, factor, make):
    optimizer = GradientAccumulationOptimizer(
        make(), 4, reduction_method=GradientAccumulationReductionMethod[method]
    )
    variable, plain = tf.Variable(_START), tf.Variable(_START)
    gradients = tf.constant(_TARGETS)

    @tf.function
    def step(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    for gradient in gradients:
        step(gradient)
    reference = make()
    for block in tf.split(gradients, 3):
        reference.apply_gradients([(factor * tf.reduce_sum(block, 0), plain)])
    np.testing.assert_allclose(variable, plain, rtol=1e-5)
    assert optimizer.iterations == 3


def test_accumulation_works_in_graphs_of_tensorflow_1():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=_START, use_resource=True)
        optimizer = GradientAccumulationOptimizer(legacy.SGD(1.0), 2)
        step = optimizer.apply_gradients([(tf.ones(3), variable)])
        session.run(tf.compat.v1.global_variables_initializer())
        seen = []
        for _ in range(4):
            session.run(step)
            seen.append(session.run(variable)[0])
    assert seen == [1.0, -1.0, -1.0, -3.0]


def test_one_mini_batch_needs_no_wrapper():
    optimizer = legacy.SGD()
    assert GradientAccumulationOptimizer(optimizer, 1) is optimizer


def test_sharded_state_must_be_offloaded():
    with pytest.raises(ValueError, match="must be offloaded"):
        GradientAccumulationOptimizer(legacy.SGD(), 2, False, True)


# -- automatic loss scaling -----------------------------------------------------------------------

_PAIRS = [
    (lambda: legacy.SGD(0.05), lambda **k: ALSOptimizerSGD(0.05, **k)),
    (lambda: legacy.SGD(0.05, 0.9), lambda **k: ALSOptimizerSGD(0.05, 0.9, **k)),
    (lambda: legacy.Adam(0.05), lambda **k: ALSOptimizerAdam(0.05, **k)),
    (lambda: legacy.RMSprop(0.05), lambda **k: ALSOptimizerRMSProp(0.05, **k)),
    (
        lambda: legacy.RMSprop(0.05, momentum=0.5, centered=True),
        lambda **k: ALSOptimizerRMSProp(0.05, momentum=0.5, centered=True, **k),
    ),
    (lambda: legacy.Adam(0.05), lambda **k: ALSOptimizer(legacy.Adam(0.05), **k)),
]


@pytest.mark.parametrize(("plain", "scaled"), _PAIRS)
def test_a_moving_loss_scale_does_not_change_the_training(plain, scaled):
    optimizer = scaled(initial_loss_scaling_factor=4, update_frequency=2)
    np.testing.assert_allclose(trained(optimizer), trained(plain()), rtol=2e-4, atol=1e-5)
    assert optimizer.loss_scaling_factor == 4 * 2**4  # 12 steps, of which each third moves it


def test_accumulated_scaled_gradients_train_as_plain_ones():
    make = lambda: ALSOptimizerAdam(0.05, update_frequency=1)  # noqa: E731
    optimizer = ALSGradientAccumulationOptimizer(make(), 4)
    plain = GradientAccumulationOptimizer(legacy.Adam(0.05), 4)
    np.testing.assert_allclose(trained(optimizer), trained(plain), rtol=2e-4, atol=1e-5)
    assert optimizer.loss_scaling_factor == 2**3  # moves with the weights, not each mini-batch


def scaled_steps(optimizer, gradients, **captured):
    variable = tf.Variable(np.zeros(4), dtype=tf.float16)
    for gradient in gradients:
        gradient = tf.constant(gradient, tf.float16, shape=[4])
        optimizer.apply_gradients([(gradient, variable)], **captured)
    return optimizer.loss_scaling_factor.numpy(), list(optimizer.histogram.numpy())


def als(**settings):
    return ALSOptimizer(legacy.SGD(0.01), **{"update_frequency": 2, **settings})


def test_the_factor_goes_up_without_and_down_with_overflow():
    assert scaled_steps(als(initial_loss_scaling_factor=8), [1.0, 1.0]) == (8, [8, 0])
    assert scaled_steps(als(initial_loss_scaling_factor=8), [1.0, 1.0, 1.0]) == (16, [0, 0])
    mixed = als(initial_loss_scaling_factor=8)
    assert scaled_steps(mixed, [1.0, 9000.0]) == (8, [4, 4])
    assert scaled_steps(mixed, [1.0]) == (4, [0, 0])
    assert mixed.previous_loss_scaling_factor == 8


def test_the_factor_stays_between_one_and_the_maximum():
    always = {"update_frequency": 1, "max_loss_scaling_factor": 16}
    assert scaled_steps(als(**always), [1.0] * 6)[0] == 8
    assert scaled_steps(als(**always, initial_loss_scaling_factor=4), [np.inf] * 4)[0] == 1


def test_overflowed_gradients_saturate_as_on_the_ipu():
    optimizer = als(initial_loss_scaling_factor=8)
    variable = tf.Variable(np.zeros(4), dtype=tf.float16)
    optimizer.apply_gradients([(tf.fill([4], tf.constant(-np.inf, tf.float16)), variable)])
    np.testing.assert_allclose(variable, 0.01 * 65504 / 8 * np.ones(4), rtol=1e-2)


def test_statistics_of_the_last_pass_only_and_of_captured_gradients_only():
    last = als(accumulate_statistics_over_update_period=False)
    assert scaled_steps(last, [9000.0, 9000.0]) == (1, [0, 0])
    assert scaled_steps(last, [1.0])[0] == 2
    captured = {"captured_grads": {"tag": [tf.constant([1.0, 9000.0], tf.float16)]}}
    assert scaled_steps(als(captured_grads_only=True), [9000.0], **captured) == (1, [1, 1])
    assert scaled_steps(als(lpf_alpha=0.75), [9000.0], **captured) == (1, [0.25, 1.25])


def test_a_changed_setting_reaches_functions_that_are_traced():
    optimizer = als(update_frequency=8)
    variable = tf.Variable(np.zeros(4), dtype=tf.float16)

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.ones([4], tf.float16), variable)])

    step()
    optimizer.update_frequency = 1
    step()
    assert optimizer.loss_scaling_factor == 2
    optimizer.histogram_bin_edge = 0.5
    assert optimizer.loss_scaling_factor == 1  # old statistics mean nothing at another edge


@pytest.mark.parametrize("make", [als, ALSOptimizerAdam, ALSOptimizerRMSProp])
def test_a_copy_from_the_configuration_has_the_same_configuration(make):
    optimizer = make(lpf_alpha=0.5, increase_factor=4)
    copy = type(optimizer).from_config(optimizer.get_config())
    assert copy.get_config() == optimizer.get_config()
    assert (copy.lpf_alpha, copy.increase_factor) == (0.5, 4)


def test_a_checkpoint_keeps_factor_steps_and_moments(tmp_path):
    def begin():
        variable = tf.Variable(np.zeros(4), dtype=tf.float16)
        optimizer = ALSOptimizer(legacy.SGD(0.5, momentum=0.5), update_frequency=1)
        return variable, optimizer, tf.train.Checkpoint(variable=variable, optimizer=optimizer)

    gradient = tf.ones([4], tf.float16)
    variable, optimizer, checkpoint = begin()
    optimizer.apply_gradients([(gradient, variable)])
    path = checkpoint.save(str(tmp_path / "c"))
    again_variable, again, checkpoint = begin()
    checkpoint.restore(path)
    assert (again.loss_scaling_factor, again.iterations) == (2, 1)
    optimizer.apply_gradients([(gradient, variable)])
    again.apply_gradients([(gradient, again_variable)])
    np.testing.assert_array_equal(again_variable, variable)
    np.testing.assert_array_equal(variable, np.full(4, -0.5 - 0.25 - 0.25))


def test_hyperparameters_are_those_of_the_wrapped_optimizer():
    inner = legacy.SGD(0.1, clipnorm=1.0)
    optimizer = GradientAccumulationOptimizer(ALSOptimizer(inner), 2)
    optimizer.lr = 0.5
    optimizer.momentum = 0.25
    assert inner.learning_rate == optimizer.learning_rate == 0.5
    assert inner.momentum == 0.25
    assert inner.clipnorm == optimizer.clipnorm == 1.0


def test_an_optimizer_of_another_kind_is_refused_by_name():
    with pytest.raises(ValueError, match="AdamW"):
        ALSOptimizer(tf.keras.optimizers.AdamW())


def test_replicas_agree_on_one_factor(ipus):
    strategy = ipus(2)
    with strategy.scope():
        optimizer = als(update_frequency=1, initial_loss_scaling_factor=8)
        variable = tf.Variable(np.zeros(4), dtype=tf.float16)

        @tf.function
        def step():
            mine = tf.cast(ipu.replication_ops.replication_index(), tf.float16)
            optimizer.apply_gradients([(tf.fill([4], 9000 * mine), variable)])
            return optimizer.loss_scaling_factor

        assert strategy.run(step) == 4  # the first replica saw no overflow itself


# -- layers that capture gradients ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [CaptureUpstreamGradients, CaptureActivationGradients])
def test_capture_layers_compute_as_the_layer_and_capture(kind):
    plain = tf.keras.layers.Dense(3, activation="tanh", name="d")
    layer = kind(tf.keras.layers.Dense(3, activation="tanh"), tag="here")
    x = tf.constant(_TARGETS)
    layer(x)
    plain(x)
    plain.set_weights(layer.get_weights())
    with ipu.eager.backprop.GradientCaptureTape() as tape:
        loss = tf.reduce_sum(layer(x) ** 2)
    gradients = tape.gradient(loss, layer.trainable_weights)
    with tf.GradientTape(persistent=True) as reference:
        before = x @ plain.kernel + plain.bias
        after = tf.tanh(before)
        expected = tf.reduce_sum(after**2)
    for mine, theirs in zip(
        gradients, reference.gradient(expected, plain.trainable_weights), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    arrived = reference.gradient(expected, after if kind is CaptureUpstreamGradients else before)
    (captured,) = tape.captured_gradients.values()
    np.testing.assert_allclose(captured[0], arrived, rtol=1e-5, atol=1e-6)


def test_captured_gradients_are_handed_to_an_optimizer_that_knows_them():
    class Watching(legacy.SGD):
        def apply_gradients(self, grads_and_vars, captured_grads=None):
            self.seen = captured_grads
            return super().apply_gradients(grads_and_vars)

    def step(optimizer):
        with captured.handed_to(optimizer), tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.ones([1, 3])) ** 2)
            with tape.stop_recording():
                optimizer.minimize(loss, layer.trainable_weights, tape=tape)

    layer = CaptureUpstreamGradients(tf.keras.layers.Dense(2, kernel_initializer="ones"), "here")
    watching = Watching(0.0)
    step(watching)
    np.testing.assert_allclose(watching.seen["here"][0], [[6.0, 6.0]])
    step(legacy.SGD())
    assert ipu.eager.backprop.num_gradient_collection_tapes() == 0
    assert "apply_gradients" not in vars(watching)


def test_a_capture_layer_comes_back_from_its_configuration():
    layer = CaptureActivationGradients(tf.keras.layers.LSTM(2), tag="t")
    again = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert isinstance(again, CaptureActivationGradients)
    assert sorted(again._wrapped_activations) == ["activation", "recurrent_activation"]
    assert again.tag == "t"
