"""Models in files, with the state of their optimisers."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from tensorflow import keras

X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
Y = np.ones((8, 2), np.float32)
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "loss scale": lambda: keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(0.1)),
    "newer": lambda: keras.optimizers.experimental.Adam(0.1),
}


def trained(optimizer: str) -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    model.compile(OPTIMIZERS[optimizer](), "mse")
    return fitted(model)


def fitted(model: keras.Model) -> keras.Model:
    model.fit(X, Y, batch_size=2, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("on_ipu", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_model_trains_on_where_its_file_left_off(ipus, tmp_path, optimizer, on_ipu):
    with ipus(1).scope() if on_ipu else contextlib.nullcontext():
        model = trained(optimizer)
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        for ours, original in zip(fitted(again).weights, fitted(model).weights, strict=True):
            np.testing.assert_allclose(ours, original, rtol=1e-6)


def test_a_model_that_was_never_trained_has_no_state_to_load(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").optimizer.iterations.numpy() == 0
