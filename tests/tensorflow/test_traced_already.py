"""Functions that a program has traced itself run on all replicas, as those it has not."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import cross_replica_ops, replication_ops

NUMBER = tf.TensorSpec([], tf.float32)


def test_a_traced_function_runs_on_all_replicas(ipus):
    strategy = ipus(4)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def step(x):
        mine = x + tf.cast(replication_ops.replication_index(), tf.float32)
        outfeed.enqueue(mine)
        return cross_replica_ops.cross_replica_sum(mine)

    traced = step.get_concrete_function(NUMBER)
    with strategy.scope():
        for first in (10.0, 20.0):
            assert float(strategy.run(traced, (tf.constant(first),))) == 4 * first + 6
    np.testing.assert_array_equal(outfeed.dequeue(), [[10, 11, 12, 13], [20, 21, 22, 23]])


@pytest.mark.parametrize("count", [1, 2])
def test_it_is_called_as_tensorflow_lets_it_be_called(ipus, count):
    strategy = ipus(count)

    @tf.function
    def power(x, exponent, negative=False, *, scale=None):
        result = cross_replica_ops.cross_replica_mean(x**exponent) * scale
        return -result if negative else result

    traced = power.get_concrete_function(NUMBER, 3, scale=NUMBER)
    x, scale = tf.constant(2.0), tf.constant(10.0)
    calls = [
        ((x,), {"scale": scale}), ((), {"x": x, "scale": scale}), ((x, scale), {}),
        ((x, 3, False), {"scale": scale}), ((2, 3, False), {"scale": 10}),
    ]  # fmt: skip
    with strategy.scope():
        for args, kwargs in calls:
            assert float(strategy.run(traced, args, kwargs)) == 80
        with pytest.raises(TypeError, match="x, scale"):
            strategy.run(traced, (x,))


def test_a_method_and_its_variable_are_those_of_the_object(ipus):
    strategy = ipus(2)

    class Counting(tf.Module):
        def __init__(self):
            super().__init__()
            self.total = tf.Variable(0.0)

        @tf.function
        def add(self, x):
            self.total.assign_add(cross_replica_ops.cross_replica_sum(x))
            return self.total.read_value()

    with strategy.scope():
        counting = Counting()
        traced = counting.add.get_concrete_function(NUMBER)
        assert float(strategy.run(traced, (tf.constant(1.0),))) == 2
        assert float(strategy.run(traced, (tf.constant(3.0),))) == 8
    assert float(counting.total) == 8


def test_what_comes_from_a_file_runs_as_it_was_saved(ipus, tmp_path):
    module = tf.Module()
    module.total = tf.Variable(1.0)

    @tf.function(input_signature=[NUMBER])
    def add(x):
        module.total.assign_add(x)
        return module.total.read_value()

    module.add = add
    tf.saved_model.save(module, str(tmp_path), add)
    loaded = tf.saved_model.load(str(tmp_path))
    strategy = ipus(2)
    with strategy.scope():
        serve = loaded.signatures["serving_default"]
        for expected in (3, 5):
            (result,) = strategy.run(serve, (tf.constant(2.0),)).values()
            assert float(result) == expected


def test_what_is_only_compiled_gives_zeros_traced_or_not(ipus):
    kind = ipu.config.DeviceConnectionType.PRE_COMPILE
    strategy = ipus(2, device_connection__version="ipu2", device_connection__type=kind)
    traced = tf.function(lambda x: x + 1).get_concrete_function(NUMBER)
    with strategy.scope():
        assert float(strategy.run(traced, (tf.constant(1.0),))) == 0
