"""Models whose own steps say what is called, and that have no `call`: GANs and their kin."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras


def dense(units: int, seed: int, **options) -> keras.layers.Layer:
    return keras.layers.Dense(
        units, kernel_initializer=keras.initializers.GlorotUniform(seed), **options
    )


class Gan(keras.Model):
    """As Keras's example for images has it; its noise is made of the data, to be repeatable."""

    def __init__(self) -> None:
        super().__init__()
        self.discriminator = keras.Sequential(
            [keras.Input((4,)), dense(8, 1, activation="tanh"), dense(1, 2)]
        )
        self.generator = keras.Sequential([keras.Input((2,)), dense(4, 3)])

    def compile(self, d_optimizer, g_optimizer, loss_fn, **options):
        super().compile(**options)
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real):
        noise = tf.reverse(real[:, 1:3], [1])
        batch = tf.shape(real)[0]
        both = tf.concat([self.generator(noise), real], 0)
        labels = tf.concat([tf.ones((batch, 1)), tf.zeros((batch, 1))], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(both))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            judged = self.discriminator(self.generator(noise))
            g_loss = self.loss_fn(tf.zeros((batch, 1)), judged)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


def made(kind: type[Gan] = Gan, **options) -> Gan:
    model = kind()
    optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.02, momentum=0.5)]
    # Keras wants to be told how losses of steps of one's own are reduced under a strategy.
    loss = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
    model.compile(*optimizers, lambda *given: tf.reduce_mean(loss(*given)), **options)
    return model


def images() -> tf.data.Dataset:
    real = np.random.default_rng(8).normal(size=(32, 4)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(real).batch(4, drop_remainder=True)


def test_a_gan_learns_as_it_does_without_ipus(ipus):
    plain = made()
    expected = plain.fit(images(), epochs=3, verbose=0).history
    with ipus(1).scope():
        ours = made(steps_per_execution=4)
        found = ours.fit(images(), epochs=3, verbose=0).history
    assert len(set(expected["d_loss"])) == 3
    for name, losses in expected.items():
        np.testing.assert_allclose(found[name], losses, rtol=1e-4)
    for one, other in zip(ours.trainable_weights, plain.trainable_weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_gan_learns_in_replicas(ipus):
    with ipus(2).scope():
        losses = made().fit(images(), epochs=2, verbose=0).history
    assert np.isfinite(losses["d_loss"] + losses["g_loss"]).all()


class Judging(Gan):
    def test_step(self, real):
        self.d_loss_metric.update_state(tf.reduce_mean(self.discriminator(real)))
        return {"d_loss": self.d_loss_metric.result()}

    def predict_step(self, real):
        return self.generator(real[:, :2])


def test_each_function_needs_its_own_step_or_a_call(ipus):
    with ipus(1).scope():
        with pytest.raises(NotImplementedError, match="must implement the `call`.*`predict_step`"):
            made().predict(images())
        with pytest.raises(NotImplementedError, match="must implement the `call`.*`test_step`"):
            made().evaluate(images(), verbose=0)
        model = made(Judging)
        judged = model.evaluate(images(), verbose=0)
        generated = model.predict(images(), verbose=0)
    real = np.concatenate(list(images()))
    np.testing.assert_allclose(judged, np.mean(model.discriminator(real)), atol=1e-5)
    np.testing.assert_allclose(generated, model.generator(real[:, :2]), atol=1e-5)
