"""What stock operations compute on an IPU, where that differs from the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.compiler.xla import xla
from tensorflow.python.ipu.ops import embedding_ops, replication_ops

from softipu.frontends.tensorflow import ipu_semantics, replicas

IPU = "/device:IPU:0"
v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("ipus")


def test_a_label_out_of_range_makes_its_row_nan_and_no_error():
    logits = tf.constant(np.random.default_rng(0).normal(size=(3, 4)), tf.float32)
    labels = tf.constant([2, 4, -1])

    def loss_and_gradient(labels):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return loss.numpy(), tape.gradient(loss, logits).numpy()

    expected = loss_and_gradient(tf.constant([2, 0, 0]))
    with tf.device(IPU):
        loss, gradient = loss_and_gradient(labels)
    assert loss[0] == expected[0][0]
    assert np.isnan(loss[1:]).all()
    assert (gradient[0] == expected[1][0]).all()
    assert np.isnan(gradient[1:]).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="label value"):
        loss_and_gradient(labels)  # on the CPU


def test_sums_of_halves_do_not_overflow_on_the_way():
    large = tf.fill([2, 1000], tf.constant(30000, tf.float16))
    with tf.device(IPU):
        assert tf.reduce_mean(large, 1).numpy().tolist() == [30000, 30000]
        assert tf.reduce_sum(large - 29999, 1).dtype == tf.float16


def test_pools_of_halves_take_channels_first():
    x = np.random.default_rng(1).normal(size=(1, 2, 6, 6)).astype(np.float16)
    with tf.device(IPU):
        maximum = tf.nn.max_pool2d(x, 3, 2, "SAME", data_format="NCHW")
        mean = tf.nn.avg_pool2d(x, 3, 2, "SAME", data_format="NCHW")
    last = x.transpose(0, 2, 3, 1).astype(np.float32)
    for ours, stock in ((maximum, tf.nn.max_pool2d), (mean, tf.nn.avg_pool2d)):
        expected = tf.transpose(stock(last, 3, 2, "SAME"), [0, 3, 1, 2])
        np.testing.assert_allclose(ours, expected, rtol=2e-3)


def test_batch_norms_take_halves_for_scale_and_offset():
    x = np.random.default_rng(2).normal(size=(4, 3, 3, 2)).astype(np.float16)
    half = tf.ones(2, tf.float16)
    with tf.device(IPU):
        y, mean, _ = v1.nn.fused_batch_norm(x, half, half)
    expected = v1.nn.fused_batch_norm(x.astype(np.float32), tf.ones(2), tf.ones(2))
    assert mean.dtype == tf.float16
    np.testing.assert_allclose(y, expected[0], atol=5e-3)


def test_distributed_batch_norms_share_their_statistics_in_groups(ipus):
    data = np.random.default_rng(3).normal(size=(4, 2, 3, 3, 2)).astype(np.float32)
    size = "distributed_batch_norm_replica_group_size"
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    setattr(config.norms.experimental, size, 2)
    config.configure_ipu_system()

    def loss_and_gradient(x, weight):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = v1.nn.fused_batch_norm(x, tf.ones(2), tf.zeros(2))[0]
            loss = tf.reduce_sum(y * y * y * weight)
        return y, tape.gradient(loss, x)

    def body():
        return loss_and_gradient(tf.constant(data)[replication_ops.replication_index()], 1.0)

    with tf.device(IPU), replicas.trace(4) as tracing:
        traced = tf.function(body, autograph=False).get_concrete_function()
    results = replicas.Replicated(traced, tracing, 4)([])
    for first in (0, 2):
        both = tf.constant(data[first : first + 2].reshape(4, 3, 3, 2))
        for place, expected in enumerate(loss_and_gradient(both, 1.0)):
            ours = np.concatenate([results[first][place], results[first + 1][place]])
            np.testing.assert_allclose(ours, expected, atol=2e-5)


def test_distributed_batch_norms_bear_channels_that_hardly_vary_around_a_large_mean(ipus):
    data = np.random.default_rng(6).normal(5000, 1e-2, size=(2, 64, 8, 8, 1)).astype(np.float32)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.norms.experimental.distributed_batch_norm_replica_group_size = 2
    config.configure_ipu_system()

    def body():
        x = tf.constant(data)[replication_ops.replication_index()]
        with tf.GradientTape() as tape:
            tape.watch(x)
            # The mean of the squares is rounded to whole numbers; the variance is 0.0001.
            y, _, variance = v1.nn.fused_batch_norm(x, tf.ones(1), tf.zeros(1), epsilon=1.01e-5)
            loss = tf.reduce_sum(y * y * y)
        return y, variance, tape.gradient(loss, x)

    with tf.device(IPU), replicas.trace(2) as tracing:
        traced = tf.function(body, autograph=False).get_concrete_function()
    results = replicas.Replicated(traced, tracing, 2)([])
    exact = data.astype(np.float64)
    for y, variance, gradient in results:
        np.testing.assert_allclose(variance, [exact.var()], rtol=0.05)
        assert np.isfinite(gradient).all()
        assert 0.5 < np.std(y) < 1.5


def test_distributed_batch_norms_need_no_factor_for_averages(ipus):
    """Keras leaves it out in graphs of TensorFlow 1."""
    data = np.random.default_rng(4).normal(size=(2, 2, 3, 3, 2)).astype(np.float32)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.norms.experimental.distributed_batch_norm_replica_group_size = 2
    config.configure_ipu_system()

    def norm(x):
        given = {"mean": tf.ones(2), "variance": tf.ones(2), "exponential_avg_factor": None}
        return v1.nn.fused_batch_norm(x, tf.ones(2), tf.zeros(2), **given)

    with tf.device(IPU), replicas.trace(2) as tracing:
        traced = tf.function(
            lambda: norm(tf.constant(data)[replication_ops.replication_index()]), autograph=False
        ).get_concrete_function()
    y, mean, variance = replicas.Replicated(traced, tracing, 2)([])[0]
    whole = norm(tf.constant(data.reshape(4, 3, 3, 2)))
    np.testing.assert_allclose(y, whole[0][:2], atol=2e-5)
    np.testing.assert_allclose(mean, whole[1], atol=2e-5)
    np.testing.assert_allclose(variance, whole[2], atol=2e-5)


def test_a_lookup_of_a_row_that_is_not_there_is_zero():
    table = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
    with tf.GradientTape() as tape:
        rows = embedding_ops.embedding_lookup(table, tf.constant([2, 3, -1]))
    assert rows.numpy().tolist() == [[4, 5], [0, 0], [0, 0]]
    assert tape.gradient(rows, table).numpy().tolist() == [[0, 0], [0, 0], [1, 1]]


def test_xla_compile_under_an_ipu_is_the_compiler_of_the_ipu():
    with tf.Graph().as_default(), tf.device(IPU):
        number = xla.compile(lambda: tf.cast(replicas.count(), tf.int32) + 0)
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 2
        config.configure_ipu_system()
        with v1.Session() as session:
            assert session.run(number) == [2]
    with tf.Graph().as_default(), v1.Session() as session:
        assert session.run(v1.xla.experimental.compile(lambda: tf.constant(1) + 1)) == [2]


def test_what_belongs_to_the_host_stays_as_it_is():
    with tf.device(IPU):
        assert ipu_semantics.on_ipu()
        with tf.device("/device:CPU:0"):
            assert not ipu_semantics.on_ipu()
    assert not ipu_semantics.on_ipu()
