"""Gradient accumulation by optimizers, against sums computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

train = tf.compat.v1.train
METHODS = ["SUM", "MEAN", "RUNNING_MEAN"]


def gradients(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


def momentum_reference(steps: np.ndarray, window: int, method: str) -> np.ndarray:
    """Momentum with rate 0.1 and decay 0.9 from zero, one update for `window` gradients."""
    weight, velocity = np.zeros(3), np.zeros(3)
    for start in range(0, len(steps), window):
        total = steps[start : start + window].sum(axis=0, dtype=np.float64)
        velocity = 0.9 * velocity + (total if method == "SUM" else total / window)
        weight = weight - 0.1 * velocity
    return weight


def momentum():
    return train.MomentumOptimizer(0.1, 0.9)


@pytest.mark.parametrize("method", METHODS)
def test_an_update_uses_the_gradients_of_all_mini_batches(method):
    from tensorflow.python.ipu import optimizers

    steps = gradients(0, 12)
    weight = tf.Variable(tf.zeros(3))
    optimizer = optimizers.GradientAccumulationOptimizerV2(momentum(), 4, reduction_method=method)

    @tf.function
    def step(gradient):
        optimizer.apply_gradients([(gradient, weight)])

    for number, gradient in enumerate(steps):
        before = weight.numpy()
        step(tf.constant(gradient))
        assert np.array_equal(before, weight.numpy()) == (number % 4 != 3)
    np.testing.assert_allclose(weight, momentum_reference(steps, 4, method), rtol=1e-5)


def test_eager_calls_accumulate_too():
    from tensorflow.python.ipu import optimizers

    steps = gradients(1, 6)
    weight = tf.Variable(tf.zeros(3))
    optimizer = optimizers.GradientAccumulationOptimizerV2(momentum(), 3)
    for gradient in steps:
        optimizer.apply_gradients([(tf.constant(gradient), weight)])
    np.testing.assert_allclose(weight, momentum_reference(steps, 3, "SUM"), rtol=1e-5)


def test_a_loop_in_a_session_accumulates_and_adds_no_variables_of_its_own():
    from tensorflow.python.ipu import ipu_compiler, loops, optimizers

    steps = gradients(2, 8)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:

        def body(index):
            weight = tf.compat.v1.get_variable("weight", [3], initializer=tf.zeros_initializer())
            loss = tf.reduce_sum(weight * tf.gather(steps, index))
            optimizer = optimizers.GradientAccumulationOptimizerV2(momentum(), 4)
            return index + 1, optimizer.minimize(loss)

        with tf.device("/device:IPU:0"):
            run = ipu_compiler.compile(lambda: loops.repeat(8, body, [0]))
        names = [variable.op.name for variable in tf.compat.v1.global_variables()]
        assert sorted(names) == ["weight", "weight/Momentum"]
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(run)
        (weight,) = session.run(tf.compat.v1.trainable_variables())
    np.testing.assert_allclose(weight, momentum_reference(steps, 4, "SUM"), rtol=1e-5)


@pytest.mark.parametrize("replicas", [2, 4])
def test_totals_are_averaged_over_replicas_once_for_each_update(ipus, replicas):
    from tensorflow.python.ipu import ipu_compiler, loops, optimizers
    from tensorflow.python.ipu.ops import replication_ops

    ipus(replicas)
    steps = gradients(3, 8 * replicas).reshape(8, replicas, 3)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:

        def body(index):
            weight = tf.compat.v1.get_variable("weight", [3], initializer=tf.zeros_initializer())
            mine = tf.constant(steps)[index, replication_ops.replication_index()]
            optimizer = optimizers.CrossReplicaGradientAccumulationOptimizerV2(momentum(), 4)
            return index + 1, optimizer.minimize(tf.reduce_sum(weight * mine))

        with tf.device("/device:IPU:0"):
            run = ipu_compiler.compile(lambda: loops.repeat(8, body, [0]))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(run)
        (weight,) = session.run(tf.compat.v1.trainable_variables())
    expected = momentum_reference(steps.mean(axis=1), 4, "SUM")
    np.testing.assert_allclose(weight, expected, rtol=1e-5)


def test_accumulators_can_be_wider_than_the_gradients():
    from tensorflow.python.ipu import optimizers

    class Spy(train.GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            ((gradient, variable),) = grads_and_vars
            seen.append(gradient.dtype)
            return variable.assign(tf.cast(gradient / 16.0, variable.dtype))

    seen: list[tf.DType] = []
    weight = tf.Variable(tf.zeros(3, tf.float16))
    optimizer = optimizers.GradientAccumulationOptimizerV2(
        Spy(0.1), 8, dtype=lambda variable: tf.float32
    )
    for _ in range(8):  # the sum does not fit in float16
        optimizer.apply_gradients([(tf.constant([40000.0] * 3, tf.float16), weight)])
    assert seen == [tf.float32]
    np.testing.assert_allclose(weight, [20000.0] * 3)


def test_unknown_reductions_and_unfit_optimizers_are_refused():
    from tensorflow.python.ipu import gradient_accumulation, optimizers

    with pytest.raises(ValueError, match="Cannot parse Exp as one of Gradient.* SUM, MEAN"):
        gradient_accumulation.GradientAccumulationReductionMethod.parse("Exp")
    with pytest.raises(ValueError, match="num_mini_batches must be a positive number"):
        optimizers.GradientAccumulationOptimizerV2(momentum(), 0)
    with pytest.raises(ValueError, match="Use GradientAccumulationOptimizerV2"):
        optimizers.GradientAccumulationOptimizer(train.AdamOptimizer(), 2)
    with pytest.raises(ValueError, match="keras.ipu.optimizers"):
        optimizers.CrossReplicaOptimizer(tf.keras.optimizers.legacy.SGD())


def test_gradients_are_mapped_before_they_are_applied():
    from tensorflow.python.ipu import optimizers

    weight = tf.Variable([1.0, 2.0])
    optimizer = optimizers.MapGradientOptimizer(
        train.GradientDescentOptimizer(1.0), lambda gradient, variable: gradient + 2.0 * variable
    )
    optimizer.minimize(lambda: tf.reduce_sum(weight), var_list=[weight])
    np.testing.assert_allclose(weight, [-2.0, -3.0])


def test_a_loop_that_ends_between_updates_is_refused_when_it_runs(ipus):
    from tensorflow.python import ipu

    def step():
        weight = tf.compat.v1.get_variable("weight", initializer=1.0)
        accumulating = ipu.optimizers.GradientAccumulationOptimizerV2(momentum(), 4)
        return accumulating.minimize(weight * weight)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device("/device:IPU:0"):
        loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(10, step))
        with pytest.raises(
            tf.errors.FailedPreconditionError, match="4 number of mini batches .* 10 iterations"
        ):
            session.run(loop)
