"""Compiled functions that programs for the IPU call, and host functions that call such programs."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu
from tensorflow.python.ipu.ops.cross_replica_ops import cross_replica_sum

IPU = "/device:IPU:0"


@pytest.fixture
def doubled():
    """A compiled function with an outfeed, which XLA cannot compile, and that outfeed."""
    feed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def double(x):
        feed.enqueue(x)
        return cross_replica_sum(x) * 2

    double.feed = feed
    return double


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_compiled_function_is_a_part_of_the_program_that_calls_it(ipus, doubled, replicas):
    @tf.function(jit_compile=True)
    def program(x):
        for _ in tf.range(2):
            x = doubled(x)
        return x

    strategy = ipus(replicas)
    assert strategy.run(program, [tf.constant(1.0)]).numpy() == (2 * replicas) ** 2
    fed = doubled.feed.dequeue().numpy()
    assert fed.reshape(2, replicas)[:, 0].tolist() == [1, 2 * replicas]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_host_function_runs_the_program_on_all_replicas(ipus, doubled, replicas):
    @tf.function
    def on_host(x):
        for _ in tf.range(2):
            x = strategy.run(doubled, [x])
        return x

    strategy = ipus(replicas)
    assert on_host(tf.constant(1.0)).numpy() == (2 * replicas) ** 2
    assert doubled.feed.dequeue().numpy().size == 2 * replicas


def test_a_function_in_several_programs_is_a_part_of_each(ipus):
    strategy = ipus(4)

    @tf.function
    def total(x):
        return cross_replica_sum(x)

    first = tf.function(lambda x: total(x) + 1)
    second = tf.function(lambda x: total(x) + 2, jit_compile=True)
    with strategy.scope():
        for x in (tf.constant(3.0), tf.constant([3.0]), tf.constant(3.0)):
            assert strategy.run(first, (x,)).numpy() == 13
            assert strategy.run(second, (x,)).numpy() == 14
        ipus(2)
        assert strategy.run(first, (tf.constant(3.0),)).numpy() == 7
    assert total(tf.constant(3.0)).numpy() == 3


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_program_runs_also_where_nobody_wants_its_result(ipus, replicas):
    strategy = ipus(replicas)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function(jit_compile=True)
    def program():
        total.assign_add(cross_replica_sum(1.0))

    @tf.function
    def on_host():
        for _ in tf.range(3):
            strategy.run(program)

    on_host()
    on_host()
    assert total.numpy() == 6 * replicas


def test_a_compiled_function_on_an_ipu_device_is_a_program_for_one_ipu_too(ipus, doubled):
    ipus(1)
    with tf.device(IPU):
        assert doubled(tf.constant(2.0)).numpy() == 4
    assert doubled.feed.dequeue().numpy().tolist() == [2]


def test_a_compiled_function_in_a_session_is_a_part_of_the_program(ipus, doubled):
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [])
        with tf.device(IPU):
            result = ipu.ipu_compiler.compile(lambda x: doubled(x) + 1, [x])
        with tf.compat.v1.Session() as session:
            ipus(1)
            assert session.run(result, {x: 3}) == [7]


@pytest.mark.parametrize("compiled", [None, True])
def test_the_call_of_a_model_may_be_a_function(ipus, compiled):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer="ones")

        @tf.function(jit_compile=compiled)
        def call(self, x):
            return self.dense(x)

    with ipus(1).scope():
        model = Model()
        model.compile("sgd", "mse")
        predicted = model.predict(np.ones((4, 3), np.float32), batch_size=2)
    assert predicted.tolist() == [[3]] * 4


class Functions(keras.Model):
    """Its parts are functions of their own, as in TensorFlow's tutorials."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner, self.outer = keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)

    @tf.function
    def encode(self, x, scale=1.0):
        for _ in tf.range(2):
            x = x * scale
        return self.inner(x)

    @tf.function(jit_compile=True)
    def decode(self, parts):
        return self.outer(parts["code"])

    def call(self, x):
        return self.decode({"code": self.encode(x, scale=2.0)})


class AlsoCall(Functions):
    @tf.function
    def call(self, x):
        return self.decode({"code": self.encode(x, scale=2.0)})


@pytest.mark.parametrize("kind", [Functions, AlsoCall])
def test_models_whose_parts_are_functions_train_as_on_the_cpu(ipus, kind):
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    trained = []
    for scope in (ipus().scope, contextlib.nullcontext):
        keras.utils.set_random_seed(1)
        with scope():
            model = kind()
            model.compile(keras.optimizers.SGD(0.1), "mse")
            model.fit(x, x[:, :1], batch_size=2, shuffle=False, verbose=0)
        trained.append(model.get_weights())
    assert len(trained[0]) == 4
    for ours, plain in zip(*trained, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


def test_layers_in_functions_of_a_model_can_have_stages(ipus):
    with ipus(2).scope():
        model = Functions()
        model.build((2, 4))
        layers = [each.layer for each in model.get_pipeline_stage_assignment()]
    assert [layer for layer in layers if layer in model.layers] == [model.inner, model.outer]


class Branching(keras.Model):
    def call(self, x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: -x)


def test_a_call_that_takes_no_symbolic_inputs_says_so(ipus):
    with ipus().scope():
        model = Branching()
        model.compile("sgd", "mse")
        with pytest.raises(
            ValueError, match=r"(?s)belongs into a layer's `call`.*from `call` is: "
        ):
            model.predict(np.ones((2, 4), np.float32), batch_size=2)
        with pytest.raises(ValueError, match="plain shape"):
            Branching().build((2, 4))
