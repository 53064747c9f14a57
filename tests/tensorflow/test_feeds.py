"""Infeeds and outfeeds: what goes in comes out, in order, for each replica."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("ipus")  # leases of its own, no configuration left behind


def numbers(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda x: tf.cast(x, tf.float32))


def echo_loop(count: int, mode=None):
    """A function that sends each element of 0, 1, 2 … times ten to an outfeed."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers(100))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(mode)
    _ = infeed.initializer

    @tf.function(jit_compile=True)
    def loop():
        ipu.loops.repeat(count, lambda x: outfeed.enqueue(10 * x), infeed_queue=infeed)

    return loop, outfeed


def test_elements_leave_in_the_order_in_which_they_came(ipus):
    strategy = ipus(1)
    loop, outfeed = echo_loop(4)
    strategy.run(loop)
    strategy.run(loop)
    np.testing.assert_array_equal(outfeed.dequeue(), 10.0 * np.arange(8))
    assert len(outfeed.dequeue()) == 0


def test_replicas_take_elements_in_turns(ipus):
    strategy = ipus(4)
    loop, outfeed = echo_loop(3)
    strategy.run(loop)
    np.testing.assert_array_equal(outfeed.dequeue(), 10.0 * np.arange(12).reshape(3, 4))


def test_the_mode_last_keeps_the_newest_element_of_each_replica(ipus):
    strategy = ipus(2)
    loop, outfeed = echo_loop(3, ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)
    strategy.run(loop)
    np.testing.assert_array_equal(outfeed.dequeue(), [40.0, 50.0])
    with pytest.raises(tf.errors.FailedPreconditionError, match="get the last value"):
        outfeed.dequeue()


def test_a_thread_can_poll_while_the_loop_runs(ipus):
    strategy = ipus(1)
    loop, outfeed = echo_loop(100)
    got: list[float] = []

    def poll() -> None:
        while len(got) < 100:
            got.extend(float(element) for element in outfeed)

    poller = threading.Thread(target=poll)
    poller.start()
    strategy.run(loop)
    poller.join(60)
    assert got == [10.0 * i for i in range(100)]


def test_an_infeed_needs_static_shapes_and_types_of_the_ipu():
    with pytest.raises(ValueError, match="drop_remainder=True"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(numbers(10).batch(3))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(3))
    with pytest.raises(tf.errors.FailedPreconditionError, match="Unsupported datatype int64"):
        _ = infeed.initializer


def test_an_outfeed_is_enqueued_in_one_place(ipus):
    strategy = ipus(1)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def twice(x):
        outfeed.enqueue(x)
        outfeed.enqueue(x)

    with pytest.raises(ValueError, match="only be enqueued once"):
        strategy.run(twice, (tf.constant(1.0),))


def test_an_infeed_that_is_deleted_can_start_again():
    with tf.Graph().as_default(), v1.Session() as session:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers(3))
        start, stop = infeed.initializer, infeed.deleter
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            [total] = ipu.ipu_compiler.compile(
                lambda: ipu.loops.repeat(3, lambda v, x: v + x, [0.0], infeed)
            )
        with pytest.raises(tf.errors.NotFoundError, match="Infeed with id="):
            session.run(stop)
        for _ in range(2):
            session.run(start)
            assert session.run(total) == 3.0
            session.run(stop)


def test_an_iterator_feeds_a_function_that_gets_it_as_an_argument(ipus):
    strategy = ipus(2)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    traces = []

    @tf.function(jit_compile=True)
    def step(iterator, count):
        traces.append(iterator)
        for _ in tf.range(count):
            outfeed.enqueue({"x": next(iterator)})

    def run() -> int:
        strategy.run(step, (ipu.ipu_infeed_queue.IPUIterator(numbers(8)), tf.constant(2)))
        np.testing.assert_array_equal(outfeed.dequeue()["x"], [[0.0, 1.0], [2.0, 3.0]])
        return len(traces)

    assert run() == run()  # another iterator of the same kind is no reason to trace again


def test_synthetic_data_are_not_transferred(ipus, monkeypatch):
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data --synthetic_data_initializer=2")
    strategy = ipus(1)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers(8))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def loop():
        return ipu.loops.repeat(3, lambda v, x: (v + x, outfeed.enqueue(x)), [0.0], infeed)

    assert strategy.run(loop) == 6.0
    assert len(outfeed.dequeue()) == 0
