"""Collectives against NumPy: what each replica gets, and which gradients come back."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import (
    all_to_all_op,
    cross_replica_ops,
    reduce_scatter_op,
    replication_ops,
    within_replica_ops,
)

from softipu.frontends.tensorflow import replicas

REPLICAS = 4
#: Row r is what replica r starts with.
DATA = np.random.default_rng(1).normal(size=(REPLICAS, 8)).astype(np.float32)


def on_replicas(function, count=REPLICAS):
    """`function(x)` on each replica, x being its row of DATA; the results, by replica."""

    def body(data):
        return tf.nest.flatten(function(data[replication_ops.replication_index()]))

    with replicas.trace(count) as current:
        traced = tf.function(body, autograph=False).get_concrete_function(
            tf.TensorSpec(DATA.shape, tf.float32)
        )
    results = replicas.Replicated(traced, current, count)([tf.constant(DATA)])
    return [[tensor.numpy() for tensor in outputs] for outputs in results]


def gradient_of(function, weights):
    """On each replica, d(sum(function(x) * weights[replica]))/dx, all replicas' losses added."""

    def with_gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * tf.constant(weights)[replication_ops.replication_index()])
        return tape.gradient(loss, x)

    return np.stack([outputs[0] for outputs in on_replicas(with_gradient)])


@pytest.mark.parametrize("size", [None, 1, 2, 4])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (cross_replica_ops.cross_replica_sum, np.sum),
        (cross_replica_ops.cross_replica_mean, np.mean),
    ],
)
def test_a_reduction_covers_the_own_group(op, expected, size):
    results = on_replicas(lambda x: op(x, replica_group_size=size))
    groups = DATA.reshape(-1, size or REPLICAS, 8)
    for replica, (result,) in enumerate(results):
        group = groups[replica // (size or REPLICAS)]
        np.testing.assert_allclose(result, expected(group, axis=0), rtol=1e-6)


def test_all_replicas_get_the_same_bits():
    results = on_replicas(cross_replica_ops.cross_replica_sum)
    assert all(np.array_equal(result[0], results[0][0]) for result in results)


def test_the_gradient_of_a_sum_is_the_sum_of_gradients():
    weights = np.random.default_rng(2).normal(size=DATA.shape).astype(np.float32)
    found = gradient_of(cross_replica_ops.cross_replica_sum, weights)
    np.testing.assert_allclose(found, np.tile(weights.sum(0), (REPLICAS, 1)), rtol=1e-5)


def test_a_group_that_does_not_fit_is_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="groups of 3 replicas"):
        on_replicas(lambda x: cross_replica_ops.cross_replica_sum(x, replica_group_size=3))


def test_outside_replicas_a_sum_is_the_value_and_a_group_has_a_shape_only():
    assert cross_replica_ops.cross_replica_sum(3.0).numpy() == 3.0
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2, 4])
        assert all_to_all_op.all_gather(x, 8).shape == (8, 2, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="groups of 8 replicas"):
        all_to_all_op.all_gather(tf.zeros([2]), 8)


@pytest.mark.parametrize("size", [2, 4])
def test_all_gather_stacks_the_group(size):
    for replica, (one, two) in enumerate(
        on_replicas(lambda x: all_to_all_op.all_gather([x, x[:2] + 1], size))
    ):
        group = DATA.reshape(-1, size, 8)[replica // size]
        np.testing.assert_array_equal(one, group)
        np.testing.assert_allclose(two, group[:, :2] + 1)


def test_the_gradient_of_all_gather_comes_back_from_all():
    weights = np.random.default_rng(3).normal(size=(REPLICAS, REPLICAS, 8)).astype(np.float32)
    found = gradient_of(lambda x: all_to_all_op.all_gather(x, REPLICAS), weights)
    np.testing.assert_allclose(found, weights.sum(0), rtol=1e-5)


def test_all_to_all_transposes_blocks():
    results = on_replicas(lambda x: all_to_all_op.all_to_all(tf.reshape(x, [4, 2]), 0, 1, REPLICAS))
    blocks = DATA.reshape(REPLICAS, 4, 2)
    for replica, (result,) in enumerate(results):
        np.testing.assert_array_equal(result, blocks[:, replica].reshape(1, -1))


def test_the_gradient_of_all_to_all_goes_the_way_back():
    weights = np.random.default_rng(4).normal(size=DATA.shape).astype(np.float32)
    found = gradient_of(lambda x: all_to_all_op.all_to_all(x, 0, 0, REPLICAS), weights)
    expected = weights.reshape(REPLICAS, REPLICAS, 2).transpose(1, 0, 2).reshape(REPLICAS, 8)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("COLLECTIVE_OP_ADD", lambda x: x.sum(0)),
        ("COLLECTIVE_OP_MEAN", lambda x: x.mean(0)),
        ("COLLECTIVE_OP_MUL", lambda x: x.prod(0)),
        ("COLLECTIVE_OP_MIN", lambda x: x.min(0)),
        ("COLLECTIVE_OP_MAX", lambda x: x.max(0)),
        ("COLLECTIVE_OP_SQUARE_ADD", lambda x: (x**2).sum(0)),
    ],
)
def test_reduce_scatter_pads_and_keeps_the_own_part(op, expected):
    results = on_replicas(lambda x: reduce_scatter_op.reduce_scatter(x[:7], REPLICAS, op))
    whole = np.append(expected(DATA[:, :7]), 0.0).reshape(REPLICAS, 2)
    np.testing.assert_allclose([result for (result,) in results], whole, rtol=1e-5)


def test_reduce_scatter_local_keeps_the_own_part_of_the_own_value():
    results = on_replicas(
        lambda x: reduce_scatter_op.reduce_scatter(x, REPLICAS, "COLLECTIVE_OP_LOCAL")
    )
    parts = DATA.reshape(REPLICAS, REPLICAS, 2)
    np.testing.assert_array_equal([r for (r,) in results], parts[range(4), range(4)])


def test_the_gradient_of_reduce_scatter_is_gathered():
    weights = np.random.default_rng(5).normal(size=(REPLICAS, 2)).astype(np.float32)
    found = gradient_of(
        lambda x: reduce_scatter_op.reduce_scatter(x, REPLICAS, "COLLECTIVE_OP_MEAN"), weights
    )
    np.testing.assert_allclose(found, np.tile(weights.reshape(-1) / REPLICAS, (REPLICAS, 1)))
    with pytest.raises(LookupError, match="COLLECTIVE_OP_MAX"):
        gradient_of(
            lambda x: reduce_scatter_op.reduce_scatter(x, REPLICAS, "COLLECTIVE_OP_MAX"), weights
        )


def test_unknown_operators_and_ranks_are_refused():
    with pytest.raises(ValueError, match="COLLECTIVE_OP_XOR.*COLLECTIVE_OP_ADD"):
        reduce_scatter_op.reduce_scatter(tf.zeros([2]), 1, "COLLECTIVE_OP_XOR")
    with pytest.raises(ValueError, match="rank 1"):
        reduce_scatter_op.reduce_scatter(tf.zeros([2, 2]), 1)


def test_shards_reduce_with_zeros_for_what_is_missing():
    shards = [tf.constant([2.0]), tf.constant([1.0, 5.0])]
    for result in within_replica_ops.all_reduce(shards, "COLLECTIVE_OP_ADD"):
        np.testing.assert_array_equal(result, [3.0, 5.0])


def test_shards_get_balanced_parts():
    shards = [tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]) * i for i in range(1, 5)]
    parts = within_replica_ops.reduce_scatter(shards, "COLLECTIVE_OP_ADD")
    assert [part.numpy().tolist() for part in parts] == [[10, 20], [30, 0], [40, 0], [50, 0]]


def test_shards_gather_along_an_axis_with_gradients():
    one, two = tf.constant([[1.0, 2.0]]), tf.constant([[3.0]])
    with tf.GradientTape() as tape:
        tape.watch([one, two])
        gathered = within_replica_ops.all_gather([one, two], axis=1)
        loss = tf.reduce_sum(gathered[0] ** 2) + tf.reduce_sum(gathered[1])
    np.testing.assert_array_equal(gathered[1], [[1.0, 2.0, 3.0]])
    gradients = tape.gradient(loss, [one, two])
    assert [g.numpy().tolist() for g in gradients] == [[[3.0, 5.0]], [[7.0]]]


@pytest.mark.parametrize(
    ("shards", "problem"),
    [
        ([tf.zeros([2]), tf.zeros([2], tf.int32)], "same type"),
        ([tf.zeros([2]), tf.zeros([2, 1])], "same rank"),
        ([tf.zeros([2, 3]), tf.zeros([2, 4])], "same sizes"),
    ],
)
def test_shards_that_do_not_match_are_refused(shards, problem):
    with pytest.raises(ValueError, match=problem):
        within_replica_ops.all_gather(shards)


def test_the_same_shard_twice_is_refused():
    shard = tf.zeros([2])
    with pytest.raises(ValueError, match="duplicate"):
        within_replica_ops.all_reduce([shard, shard], "COLLECTIVE_OP_ADD")


def test_a_fifo_gives_each_replica_its_own_past():
    def body(data):
        index = replication_ops.replication_index()
        past = tf.TensorArray(tf.float32, 5)
        for i in tf.range(5):
            past = past.write(i, ipu.internal_ops.fifo(data[index, i], 2))
        return past.stack()

    with replicas.trace(2) as current:
        traced = tf.function(body).get_concrete_function(tf.TensorSpec(DATA.shape, tf.float32))
    results = replicas.Replicated(traced, current, 2)([tf.constant(DATA)])
    for replica, (result,) in enumerate(results):
        np.testing.assert_array_equal(result, [0, 0, *DATA[replica, :3]])


def test_shards_out_of_order_are_refused_when_they_run():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        shards = []
        for number in (0, 1):
            with ipu.scopes.ipu_shard(number):
                shards.append(tf.constant([1.0]) + 1.0)
        right = within_replica_ops.all_gather(shards)
        wrong = within_replica_ops.all_gather(shards[::-1])
        assert session.run(right[0]).tolist() == [2.0, 2.0]
        with pytest.raises(tf.errors.FailedPreconditionError, match="order of their shards"):
            session.run(wrong)
