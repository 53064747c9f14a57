"""Keras on IPUs: bad input gives the errors that users know, with the way out."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras


def model(**compile_options) -> keras.Model:
    network = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    network.compile(keras.optimizers.SGD(lr=0.1), "mse", **compile_options)
    return network


def data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((samples, 3), np.float32), np.ones((samples, 2), np.float32)


def test_batches_must_divide_by_steps_per_execution(ipus):
    divisor = r"`steps_per_execution` \(4\) must be a divisor of"
    with ipus().scope(), pytest.raises(ValueError, match=divisor):
        model(steps_per_execution=4).fit(*data(12), batch_size=2, verbose=0)


def test_a_partial_batch_is_refused(ipus):
    with ipus().scope(), pytest.raises(ValueError, match="has a partial batch"):
        model().fit(*data(7), batch_size=2, verbose=0)


@pytest.mark.parametrize("kind", ["arrays", "data set"])
def test_fewer_batches_than_replicas_are_refused_with_the_number_to_have(ipus, kind):
    given = data(4)
    if kind == "data set":
        given = (tf.data.Dataset.from_tensor_slices(given).batch(2, drop_remainder=True),)
    size = {"batch_size": 2} if kind == "arrays" else {}
    few = "contains 2 items, but all 4 replicas .* at least 4 items"
    with ipus(4).scope(), pytest.raises(ValueError, match=few):
        model().fit(*given, **size, verbose=0)


def test_fewer_steps_than_replicas_are_refused_whatever_the_data_has(ipus):
    dataset = tf.data.Dataset.from_tensor_slices(data(32)).batch(2, drop_remainder=True)
    few = "2 steps were asked for, but each of the 4 replicas"
    with ipus(4).scope(), pytest.raises(ValueError, match=few):
        model().fit(dataset, steps_per_epoch=2, verbose=0)


def test_a_dynamic_batch_is_refused(ipus):
    dataset = tf.data.Dataset.from_tensor_slices(data(8)).batch(2)
    with ipus().scope(), pytest.raises(ValueError, match="drop_remainder=True"):
        model().fit(dataset, verbose=0)


def test_steps_per_execution_must_divide_by_the_accumulation(ipus):
    with ipus().scope():
        network = model(steps_per_execution=4)
        network.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=3)
        with pytest.raises(RuntimeError, match="is not divisible by"):
            network.fit(*data(8), batch_size=2, verbose=0)


def test_a_model_with_more_stages_than_ipus(ipus):
    with ipus(1).scope():
        inputs = keras.Input((3,), batch_size=2)
        with keras.ipu.PipelineStage(0):
            x = keras.layers.Dense(4)(inputs)
        with keras.ipu.PipelineStage(1):
            x = keras.layers.Dense(2)(x)
        network = keras.Model(inputs, x)
        network.compile("sgd", "mse", steps_per_execution=4)
        network.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        with pytest.raises(ValueError, match="requires a multiple of 2 IPUs.*auto_select_ipus"):
            network.fit(*data(8), batch_size=2, verbose=0)


def test_running_eagerly_is_refused(ipus):
    with ipus().scope(), pytest.raises(RuntimeError, match="cannot run eagerly"):
        model(run_eagerly=True).fit(*data(4), batch_size=2, verbose=0)


def test_a_generator_is_refused_with_the_way_out(ipus):
    def batches():
        yield data(2)

    with ipus().scope(), pytest.raises(ValueError, match="from_generator"):
        model().fit(batches(), steps_per_epoch=1, verbose=0)


@pytest.mark.parametrize(("kind", "number"), [("inv", np.nan), ("oflo", 1e30)])
def test_a_number_that_is_none_stops_a_run_that_asked_for_it(ipus, kind, number):
    x, y = data(4)
    x[3] = number
    strategy = ipus(**{f"floating_point_behaviour__{kind}": True})
    stopped = pytest.raises(tf.errors.InternalError, match="Tiles in excepted state")
    with strategy.scope(), stopped as caught:
        model().fit(x, y, batch_size=2, verbose=0)
    assert "SIPU-3020" in str(caught.value)
    with ipus().scope():
        history = model().fit(x, y, batch_size=2, verbose=0)
    assert not np.isfinite(history.history["loss"][-1])


def test_an_overridden_train_step_works_unless_gradients_are_accumulated(ipus):
    class Halving(keras.Sequential):
        def train_step(self, inputs):
            logs = super().train_step(inputs)
            return {"half": logs["loss"] / 2, **logs}

    with ipus().scope():
        network = Halving([keras.layers.Dense(2, input_shape=(3,))])
        network.compile("sgd", "mse", steps_per_execution=2)
        logs = network.fit(*data(4), batch_size=2, verbose=0).history
        assert logs["half"][-1] * 2 == pytest.approx(logs["loss"][-1])
        network.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        with pytest.raises(RuntimeError, match="The function `train_step`"):
            network.fit(*data(4), batch_size=2, verbose=0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [(None, "returned None. Return a dictionary"), ({"a": [1.0, None]}, r"None as \['a'\]\[1\]")],
)
def test_a_step_that_returns_none_is_an_error_that_says_where(ipus, returned, message):
    class Model(keras.Sequential):
        def train_step(self, data):
            return returned

    with ipus().scope():
        network = Model([keras.layers.Dense(2, input_shape=(3,))])
        network.compile("sgd", "mse")
        with pytest.raises(ValueError, match=message):
            network.fit(*data(4), batch_size=2, verbose=0)
