"""Programs that asked to stop at numbers that are none do so wherever such a number goes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu
from tensorflow.python.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue

v1 = tf.compat.v1

TRAP = {"floating_point_behaviour__inv": True}


def roots(outfeed):
    """A program whose only trace of a square root is in the outfeed."""

    @tf.function
    def program(x):
        outfeed.enqueue(tf.sqrt(x))
        return tf.constant(1.0)

    return program


@pytest.mark.parametrize("mode", IPUOutfeedMode)
@pytest.mark.parametrize("count", [1, 2])
def test_what_goes_to_an_outfeed_only_stops_the_program(ipus, mode, count):
    strategy = ipus(count, **TRAP)
    outfeed = IPUOutfeedQueue(mode)
    with strategy.scope():
        program = roots(outfeed)
        strategy.run(program, [tf.constant(4.0)])
        np.testing.assert_array_equal(np.ravel(outfeed.dequeue()), 2.0)
        with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state") as caught:
            strategy.run(program, [tf.constant(-4.0)])
    assert isinstance(caught.value, ArithmeticError)
    assert "what is sent to an outfeed" in str(caught.value)


def test_configuring_again_turns_the_trap_on_and_off(ipus):
    outfeed = IPUOutfeedQueue()
    program = roots(outfeed)
    for trap in (False, True, False):
        strategy = ipus(1, floating_point_behaviour__inv=trap)
        with strategy.scope():
            if trap:
                with pytest.raises(ArithmeticError):
                    strategy.run(program, [tf.constant(-4.0)])
            else:
                strategy.run(program, [tf.constant(-4.0)])
    assert np.isnan(outfeed.dequeue()).tolist() == [True, True]


def test_overflow_and_invalid_operations_are_asked_for_apart(ipus):
    strategy = ipus(1, floating_point_behaviour__oflo=True)
    outfeed = IPUOutfeedQueue()
    with strategy.scope():
        program = roots(outfeed)
        strategy.run(program, [tf.constant(-4.0)])
        with pytest.raises(ArithmeticError):
            strategy.run(program, [tf.constant(np.inf)])


def test_a_loop_of_a_session_stops_at_what_its_outfeed_gets(ipus):
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(np.array([4.0, -4.0], np.float32))
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = IPUOutfeedQueue()

        def body(x):
            return outfeed.enqueue(tf.sqrt(x))

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(1, body, [], infeed))
        ipus(1, **TRAP)  # after the graph was made, as programs often do
        with v1.Session() as session:
            session.run(infeed.initializer)
            session.run(run)
            with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state"):
                session.run(run)


class Sends(keras.layers.Layer):
    """Hands the roots of its inputs to an outfeed, and goes on with the inputs."""

    def __init__(self, outfeed):
        super().__init__()
        self._outfeed = outfeed

    def call(self, inputs):
        self._outfeed.enqueue(tf.sqrt(inputs))
        return inputs


def test_a_keras_model_stops_at_what_a_layer_sends_to_an_outfeed(ipus):
    outfeed = IPUOutfeedQueue()
    with ipus(1, **TRAP).scope():
        model = keras.Sequential(
            [keras.Input((2,), batch_size=2), Sends(outfeed), keras.layers.Dense(1)]
        )
        model.compile(steps_per_execution=2)
        fine = np.ones((4, 2), np.float32)
        model.predict(fine, batch_size=2, verbose=0)
        with pytest.raises(tf.errors.InternalError, match="what is sent to an outfeed"):
            model.predict(-fine, batch_size=2, verbose=0)
