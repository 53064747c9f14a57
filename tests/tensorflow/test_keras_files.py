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


def wrapped(kind: str):
    from tf_keras.ipu import optimizers

    als = optimizers.ALSOptimizer
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    return {
        "loss scaling": lambda: als(keras.optimizers.SGD(0.1, momentum=0.9), update_frequency=2),
        "accumulation": lambda: optimizers.GradientAccumulationOptimizer(
            keras.optimizers.Adam(0.1), 2, reduction_method="mean"
        ),
        "both": lambda: optimizers.ALSGradientAccumulationOptimizer(
            als(keras.optimizers.SGD(schedule, momentum=0.9)), 2
        ),
        "of the user's": lambda: als(OwnSGD(0.1, momentum=0.9)),
    }[kind]()


class OwnSGD(keras.optimizers.legacy.SGD):
    pass


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "saved_model"])
@pytest.mark.parametrize("kind", ["loss scaling", "accumulation", "both", "of the user's"])
def test_optimizers_around_others_come_back_from_files(tmp_path, kind, file):
    from tf_keras.ipu import optimizers

    classes = {name: getattr(optimizers, name) for name in optimizers.__all__}
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    model.compile(wrapped(kind), "mse")
    fitted(model).save(tmp_path / file)
    again = keras.models.load_model(tmp_path / file, {**classes, "OwnSGD": OwnSGD})
    assert again.optimizer.get_config() == model.optimizer.get_config()
    assert again.optimizer.get_config()["inner_optimizer_type"] is type(model.optimizer._opt)
    on, originally = fitted(again).get_weights(), fitted(model).get_weights()
    if file != "saved_model":  # which restores no slots, in any TensorFlow
        np.testing.assert_allclose(on[0], originally[0], rtol=1e-6)


def test_a_wrapped_optimizer_that_nobody_knows_is_named(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    model.compile(wrapped("of the user's"), "mse")
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=r"wrapped optimizer: 'OwnSGD'.*custom_objects"):
        keras.models.load_model(tmp_path / "model.keras")
