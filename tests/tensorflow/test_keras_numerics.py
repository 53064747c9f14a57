"""Fifty steps of training on IPUs against the same arithmetic, written by hand in plain TensorFlow.

Replicas, accumulation and pipelines only say which batches make one update, and how their
gradients are joined; the reference does just that, in a Python loop.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

STEPS, BATCH = 50, 4
_layers = keras.layers


def data(batches: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    x = random.normal(size=(batches * BATCH, 6)).astype(np.float32)
    return x, (x.sum(axis=1) > 0).astype(np.int32)


def network(stages: int = 0) -> keras.Model:
    sizes, inputs = (8, 7, 6, 2), keras.Input((6,), batch_size=BATCH)
    x = inputs
    for i, size in enumerate(sizes):
        layer = _layers.Dense(
            size,
            activation="tanh" if i < 3 else None,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.5, seed=i + 1),
        )
        if stages:
            with keras.ipu.PipelineStage(i * stages // 4):
                x = layer(x)
        else:
            x = layer(x)
    return keras.Model(inputs, x)


def loss_of(model, x, y):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, model(x, training=True))


def optimizer():
    return keras.optimizers.SGD(0.01, momentum=0.9)


def by_hand(start, x, y, *, replicas=1, accumulate=1, method="sum"):
    """Weights after all updates; an update takes accumulate * replicas batches in turns."""
    model, opt = network(), optimizer()
    model.set_weights(start)
    batches = [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    size = replicas * accumulate
    for first in range(0, len(batches), size):
        total = [tf.zeros_like(v) for v in model.trainable_variables]
        for bx, by in batches[first : first + size]:
            with tf.GradientTape() as tape:
                loss = loss_of(model, bx, by)
            gradients = tape.gradient(loss, model.trainable_variables)
            total = [t + g for t, g in zip(total, gradients, strict=True)]
        if method != "sum":
            total = [t / accumulate for t in total]
        opt.apply_gradients(zip(total, model.trainable_variables, strict=True))
    return model.get_weights()


def fitted(strategy, x, y, per_execution, prepare=None, stages=0):
    with strategy.scope():
        model = network(stages)
        start = model.get_weights()
        if prepare:
            prepare(model)
        model.compile(
            optimizer(),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=per_execution,
        )
        history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][-1])
    return start, model.get_weights()


def assert_same(ours, reference, start):
    for a, b, before in zip(ours, reference, start, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert not np.allclose(a, before, atol=1e-4), "the weights have not moved"


def test_plain_training(ipus):
    x, y = data(STEPS)
    start, ours = fitted(ipus(1), x, y, 10)
    assert_same(ours, by_hand(start, x, y), start)


@pytest.mark.parametrize("method", ["sum", "mean", "running_mean"])
def test_gradient_accumulation(ipus, method):
    x, y = data(STEPS * 3)

    def prepare(model):
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=3,
            gradient_accumulation_reduction_method=method,
        )

    start, ours = fitted(ipus(1), x, y, 30, prepare)
    assert_same(ours, by_hand(start, x, y, accumulate=3, method=method), start)


@pytest.mark.parametrize("replicas", [2, 4])
def test_replication(ipus, replicas):
    x, y = data(STEPS * replicas)
    start, ours = fitted(ipus(replicas), x, y, 10)
    assert_same(ours, by_hand(start, x, y, replicas=replicas), start)


@pytest.mark.parametrize("method", ["sum", "mean", "running_mean"])
def test_gradient_accumulation_in_replicas(ipus, method):
    """Means are over the steps of a replica; those of the replicas are added up."""
    x, y = data(STEPS * 3 * 2)

    def prepare(model):
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=3,
            gradient_accumulation_reduction_method=method,
        )

    start, ours = fitted(ipus(2), x, y, 30, prepare)
    assert_same(ours, by_hand(start, x, y, replicas=2, accumulate=3, method=method), start)


@pytest.mark.parametrize(("stages", "accumulate"), [(2, 4), (4, 8)])
def test_pipelining(ipus, stages, accumulate):
    x, y = data(STEPS * accumulate)

    def prepare(model):
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=accumulate,
            gradient_accumulation_reduction_method="mean",
        )

    steps = accumulate * 5
    start, ours = fitted(ipus(stages), x, y, steps, prepare, stages)
    assert_same(ours, by_hand(start, x, y, accumulate=accumulate, method="mean"), start)


def test_replicated_pipeline_with_accumulation(ipus):
    x, y = data(STEPS * 4 * 2)

    def prepare(model):
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=4,
            gradient_accumulation_reduction_method="sum",
        )

    start, ours = fitted(ipus(4), x, y, 20, prepare, stages=2)
    # A sum does not care which replica saw which batch of an update.
    assert_same(ours, by_hand(start, x, y, replicas=2, accumulate=4), start)


def table_after_two_lookups(optimizer):
    """The first column of a table from which rows 0 and 1 are trained, one after the other."""
    embedding = _layers.Embedding(3, 2, input_length=1, embeddings_initializer="ones")
    model = keras.Sequential([embedding, _layers.Flatten()])
    model.compile(optimizer, "mse")
    model.fit(np.array([[0], [1]]), np.zeros((2, 2)), batch_size=1, shuffle=False, verbose=0)
    return embedding.get_weights()[0][:, 0]


def test_gradients_of_lookups_are_dense_so_that_all_rows_keep_their_momentum(ipus):
    with ipus(1).scope():
        table = table_after_two_lookups(keras.optimizers.SGD(0.1, momentum=0.9))
    np.testing.assert_allclose(table, [0.81, 0.9, 1], rtol=1e-6)


def test_rows_that_are_looked_up_may_be_constrained(ipus):
    with ipus(1).scope():
        layer = _layers.Embedding(3, 2, input_length=1, embeddings_constraint="unit_norm")
        model = keras.Sequential([layer, _layers.Flatten()])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(np.array([[0]]), np.zeros((1, 2)), batch_size=1, verbose=0)
    norms = np.linalg.norm(layer.get_weights()[0], axis=0)
    np.testing.assert_allclose(norms, 1, rtol=1e-4)
