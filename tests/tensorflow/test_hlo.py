"""The HLO of what runs can be had without running it through XLA."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from softipu.frontends.tensorflow import hlo


def test_of_a_function():
    weights = tf.Variable(tf.ones((3, 2)))

    @tf.function
    def product(x):
        return x @ weights

    text = hlo.of_function(product, tf.TensorSpec((4, 3), tf.float32))
    assert text.startswith("HloModule")
    assert "dot(" in text
    assert "f32[4,2]" in text


def test_of_a_model(ipus):
    x, y = np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)
    with ipus().scope():
        network = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
        network.compile("sgd", "mse", steps_per_execution=2)
        with pytest.raises(ValueError, match="has not run in mode 'predict'"):
            hlo.of_model(network, "predict")
        network.predict(x, batch_size=4)
        assert "dot(" in hlo.of_model(network, "predict")
        network.fit(x, y, batch_size=4, verbose=0)
        forward_and_backward = hlo.of_model(network, "train")
    assert forward_and_backward.count("dot(") >= 2
