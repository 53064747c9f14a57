"""`iter(dataset)` under a strategy: a stream for programs on the IPUs, shared by replicas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu
from tensorflow.python.data.ops import iterator_ops

OWNED = ipu.ipu_infeed_queue.IPUOwnedIterator


def numbers(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda x: tf.cast(x, tf.float32))


def plain(iterator: object) -> bool:
    return isinstance(iterator, iterator_ops.OwnedIterator) and not isinstance(iterator, OWNED)


def test_replicas_take_elements_of_an_iterator_in_turns(ipus):
    strategy = ipus(4)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def loop(iterator, count):
        for _ in tf.range(count):
            outfeed.enqueue(next(iterator))

    with strategy.scope():
        for begin in (0, 400):  # the second time another iterator, and no new trace
            strategy.run(loop, (iter(numbers(1000).skip(begin)), tf.constant(100)))
            taken = np.arange(begin, begin + 400, dtype=np.float32)
            np.testing.assert_array_equal(outfeed.dequeue(), taken.reshape(100, 4))


def test_a_function_may_take_the_iterator_from_around_it(ipus):
    strategy = ipus(2)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with strategy.scope():
        iterator = iter(numbers(8))

        @tf.function(jit_compile=True)
        def step():
            outfeed.enqueue(next(iterator))

        for _ in range(3):
            strategy.run(step)
    np.testing.assert_array_equal(outfeed.dequeue(), [[0, 1], [2, 3], [4, 5]])


def test_elements_are_for_programs_unless_the_strategy_was_told_otherwise(ipus):
    with ipus(1).scope():
        iterator = iter(numbers(3))
        assert isinstance(iterator, OWNED)
        with pytest.raises(RuntimeError, match="enable_dataset_iterators=False"):
            next(iterator)
        with pytest.raises(RuntimeError, match="Accessing dataset elements"):
            list(numbers(3))
    assert plain(iter(numbers(3)))
    with ipu.ipu_strategy.IPUStrategy(enable_dataset_iterators=False).scope():
        assert plain(iter(numbers(3)))
        assert [float(x) for x in numbers(3)] == [0, 1, 2]


def test_what_an_infeed_refuses_an_iterator_does_too(ipus):
    with ipus(1).scope():
        with pytest.raises(ValueError, match="drop_remainder=True"):
            iter(numbers(10).batch(3))
        with pytest.raises(tf.errors.FailedPreconditionError, match="Unsupported datatype int64"):
            iter(tf.data.Dataset.range(3))


def test_functions_that_go_through_a_data_set_are_left_as_they_are(ipus):
    @tf.function
    def total():
        result = 0.0
        for x in numbers(4):
            result += x
        return result + next(iter(numbers(3).skip(2)))

    with ipus(1).scope():
        assert float(total()) == 8


def model() -> keras.Model:
    network = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return network


def test_keras_feeds_itself(ipus):
    x, labels = np.ones((8, 3), np.float32), np.zeros(8, np.int64)  # a type of infeeds it is not
    ragged = tf.data.Dataset.from_tensor_slices(x).batch(3)
    with ipus(1).scope():
        network = model()
        assert np.isfinite(network.train_on_batch(x, labels))
        assert np.isfinite(network.fit(x, labels, batch_size=4, verbose=0).history["loss"]).all()
        scaling = keras.layers.Normalization()
        scaling.adapt(ragged)
        np.testing.assert_allclose(scaling.mean, [[1, 1, 1]])
    with ipu.ipu_strategy.IPUStrategy(enable_keras_extensions=False).scope():
        network = model()
        data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(3)
        assert np.isfinite(network.fit(data, verbose=0).history["loss"]).all()


def test_code_of_the_user_that_keras_calls_gets_iterators_of_ipus(ipus):
    seen = []

    class Looking(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seen.append(iter(numbers(2)))

    x, labels = np.ones((8, 3), np.float32), np.zeros(8, np.int32)
    with ipus(1).scope():
        model().fit(x, labels, batch_size=4, verbose=0, callbacks=[Looking()])
    assert [type(iterator) for iterator in seen] == [OWNED]
