"""An execution that fails half-way leaves nothing that the next one could mistake for its own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import cross_replica_ops, replication_ops

v1 = tf.compat.v1
BATCH = 2


def samples(batches: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    shape = batches * BATCH
    return (
        random.normal(size=(shape, 4)).astype(np.float32),
        random.normal(size=(shape, 3)).astype(np.float32),
    )


def of_unknown_size(*arrays: np.ndarray) -> tf.data.Dataset:
    """Batches that nobody has counted: that there are too few shows when they run out."""
    given = arrays if len(arrays) > 1 else arrays[0]
    batches = tf.data.Dataset.from_tensor_slices(given).batch(BATCH, drop_remainder=True)
    return batches.filter(lambda *_: True)


def model(steps: int) -> keras.Model:
    network = keras.Sequential([keras.layers.Dense(3, input_shape=(4,))])
    network.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=steps)
    return network


def fitted(network: keras.Model, start: list[np.ndarray], batches: int) -> list[np.ndarray]:
    network.set_weights(start)
    network.fit(of_unknown_size(*samples(batches)), steps_per_epoch=batches, verbose=0)
    return network.get_weights()


def test_predictions_of_replicas_are_those_of_their_own_data(ipus):
    x, _ = samples(8)
    with ipus(2).scope():
        network = model(2)
        before = network.predict(of_unknown_size(samples(7, seed=1)[0]), steps=8)
        assert len(before) == 4 * BATCH  # the second execution ran out of data
        found = network.predict(of_unknown_size(x), steps=8)
        np.testing.assert_allclose(found, network(x), rtol=1e-5)


@pytest.mark.parametrize(("replicas", "accumulate"), [(2, 1), (1, 4), (2, 4)])
def test_training_goes_on_as_if_there_had_been_no_failure(ipus, replicas, accumulate):
    batches = 8 * replicas
    with ipus(replicas).scope():
        networks = model(4), model(4)
        start = networks[0].get_weights()
        for network in networks:
            network.set_gradient_accumulation_options(accumulate)
        expected = fitted(networks[0], start, batches)
        short = of_unknown_size(*samples(batches - 1, seed=1))
        networks[1].fit(short, steps_per_epoch=batches, verbose=0)
        found = fitted(networks[1], start, batches)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_replicas_go_on_with_the_weights_of_the_first(ipus):
    """They stopped in different places; no weights are set between the two runs."""
    with ipus(2).scope():
        network = model(4)
        network.fit(of_unknown_size(*samples(15, seed=1)), steps_per_epoch=16, verbose=0)
        network.set_replication_options("LIST")
        network.fit(of_unknown_size(*samples(16)), steps_per_epoch=16, verbose=0)
        weights = network.get_weights()
        # The same batch for both: their losses differ if their weights do.
        x, y = (np.concatenate([part[:BATCH]] * 8) for part in samples(1))
        network.optimizer.lr.assign(0.0)
        (losses,) = network.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history["loss"]
    assert losses[0] == losses[1]
    np.testing.assert_array_equal(network.get_weights()[0], weights[0])


def test_a_failure_costs_no_new_trace(ipus):
    with ipus(2).scope():
        network = model(2)
        network.predict(of_unknown_size(samples(8)[0]), steps=8)
        (execution,) = network._ipu_functions.values()
        built = execution._built
        network.predict(of_unknown_size(samples(7)[0]), steps=8)
        network.predict(of_unknown_size(samples(8)[0]), steps=8)
    assert execution._built is built


def late(failing: tf.Tensor) -> tf.Operation:
    """Fails in the first replica, when the others have long sent what they send."""
    here = failing & tf.equal(replication_ops.replication_index(), 0)

    def wait(fails: np.ndarray) -> np.ndarray:
        time.sleep(0.3 * bool(fails))
        return np.asarray(bool(fails))

    fails = tf.ensure_shape(tf.numpy_function(wait, [here], tf.bool), [])
    return tf.debugging.Assert(~fails, ["stopped"])


def test_collectives_and_outfeeds_of_a_program_belong_to_one_run(ipus):
    strategy = ipus(2)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function(autograph=False)
    def program(value, failing):
        own = value + tf.cast(replication_ops.replication_index(), tf.float32)
        with tf.control_dependencies([late(failing)]):
            own = tf.identity(own)
        outfeed.enqueue(own)
        return cross_replica_ops.cross_replica_sum(own)

    def run(value: float, failing: bool = False) -> float:
        return float(strategy.run(program, args=(tf.constant(value), tf.constant(failing))))

    assert run(1.0) == 3.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="stopped"):
        run(10.0, failing=True)
    assert run(100.0) == 201.0
    np.testing.assert_array_equal(outfeed.dequeue(), [[1.0, 2.0], [100.0, 101.0]])


def test_an_update_that_was_not_complete_begins_anew(ipus):
    from tensorflow.python.ipu import optimizers

    strategy = ipus(1)
    weight = tf.Variable(0.0)
    descent = v1.train.GradientDescentOptimizer(1.0)
    optimizer = optimizers.GradientAccumulationOptimizerV2(descent, 2)

    @tf.function(autograph=False)
    def step(gradient, good):
        with tf.control_dependencies([optimizer.apply_gradients([(gradient, weight)])]):
            tf.debugging.Assert(good, ["stopped"])

    def run(gradient: float, good: bool = True) -> None:
        strategy.run(step, args=(tf.constant(gradient), tf.constant(good)))

    with pytest.raises(tf.errors.InvalidArgumentError, match="stopped"):
        run(1.0, good=False)
    run(10.0)
    run(10.0)
    assert weight.numpy() == -20.0


def test_a_session_reads_its_data_from_the_beginning_again(ipus):
    ipus(2)
    with tf.Graph().as_default(), v1.Session() as session:
        data = tf.data.Dataset.range(7).map(lambda x: tf.cast(x, tf.float32))
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)

        def body(total, x):
            return total + cross_replica_ops.cross_replica_sum(x)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            [total] = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [0.0], infeed))
        beginning = infeed.initializer
        for _ in range(2):
            session.run(beginning)
            assert session.run(total) == 0 + 1 + 2 + 3
            # Of the error and its consequence in the other replica, sessions tell either.
            with pytest.raises((tf.errors.OutOfRangeError, tf.errors.CancelledError)):
                session.run(total)


def test_threads_may_predict_on_the_same_replicas(ipus):
    """One after the other, so that none takes what belongs to another."""
    strategy = ipus(2)
    x, _ = samples(8)
    with strategy.scope():
        network = model(2)
        expected = network.predict(x, batch_size=BATCH)

    def predict(scale: float) -> float:
        with strategy.scope():
            for _ in range(5):
                found = network.predict(x * scale, batch_size=BATCH)
                np.testing.assert_allclose(found, expected * scale, rtol=1e-4, atol=1e-5)
        return scale

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(predict, [1.0, 2.0, 4.0])) == [1.0, 2.0, 4.0]
