"""Embedding tables on the device and on the host."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu.ops import embedding_ops


def test_lookup_gathers_whole_slices_and_checks_the_serialisation():
    table = tf.reshape(tf.range(24.0), [4, 3, 2])
    rows = embedding_ops.embedding_lookup(table, tf.constant([[3], [0]]), serialization_factor=2)
    np.testing.assert_array_equal(rows, tf.gather(table, [[3], [0]]))
    with pytest.raises(ValueError, match=r"serialization_factor \(3\) must divide .* \(4\)"):
        embedding_ops.embedding_lookup(table, tf.constant([0]), serialization_factor=3)


def host_table(spec):
    return embedding_ops.create_host_embedding(
        "table", [4, 2], tf.float32, optimizer_spec=spec, initializer=tf.ones([4, 2])
    )


def trained(spec, steps):
    """The table after steps of a TensorFlow 1 program whose loss is the sum of rows 1, 2, 2."""
    with tf.Graph().as_default():
        table = host_table(spec)
        rows = table.lookup(tf.constant([1, 2, 2]))
        train = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
        history = []
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            with table.register(session):
                for _ in range(steps):
                    session.run(train)
                    history.append(session.run(table.get_embedding_tensor())[:, 0].tolist())
    return history


def test_gradients_of_a_lookup_train_the_table_at_its_own_rate():
    history = trained(embedding_ops.HostEmbeddingOptimizerSpec(0.25), 2)
    assert history == [[1, 0.75, 0.5, 1], [1, 0.5, 0, 1]]


def test_accumulated_updates_wait_for_the_last_mini_batch():
    history = trained(embedding_ops.HostEmbeddingSGDGAOptimizerSpec(0.25, 2), 3)
    assert history == [[1, 1, 1, 1], [1, 0.5, 0, 1], [1, 0.5, 0, 1]]


def test_a_table_without_a_learning_rate_is_not_trained():
    with tf.Graph().as_default():
        host_table(None).lookup(tf.constant([1]))
        assert tf.compat.v1.trainable_variables() == []


def test_lookups_keep_the_shape_of_the_indices_and_clip_them():
    rows = host_table(None).lookup(tf.constant([[0, 9]]))
    assert rows.shape == [1, 2, 2]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="Unknown partition strategy ROWS"):
        embedding_ops.HostEmbedding("t", tf.zeros([2, 2]), partition_strategy="ROWS")
    with pytest.raises(NotImplementedError, match=r"HostEmbedding.register"):
        host_table(None)()
    spec = embedding_ops.HostEmbeddingOptimizerSpec(0.1)
    constant = embedding_ops.HostEmbedding("t", tf.zeros([2, 2]), optimizer_spec=spec)
    with tf.GradientTape() as tape:
        rows = constant.lookup(tf.constant([0]))
    with pytest.raises(ValueError, match="its embedding_tensor is a variable"):
        tape.gradient(rows, tape.watched_variables())
