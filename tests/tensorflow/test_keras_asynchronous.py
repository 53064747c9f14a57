"""Asynchronous callbacks hear of each step of each replica, of this run and of no other."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

BATCH = 2


class Heard(keras.callbacks.Callback):
    """Notes the numbers of the batches that ended, by mode, and what came with them."""

    def __init__(self):
        super().__init__()
        self.begun: dict[str, list[int]] = {"train": [], "test": [], "predict": []}
        self.ended: dict[str, list[int]] = {"train": [], "test": [], "predict": []}
        self.losses: list[float] = []
        self.outputs: list[np.ndarray] = []

    def on_train_batch_begin(self, batch, logs=None):
        self.begun["train"].append(batch)

    def on_train_batch_end(self, batch, logs=None):
        self.ended["train"].append(batch)
        self.losses.append(float(logs["loss"]))

    def on_test_batch_begin(self, batch, logs=None):
        self.begun["test"].append(batch)

    def on_test_batch_end(self, batch, logs=None):
        self.ended["test"].append(batch)

    def on_predict_batch_begin(self, batch, logs=None):
        self.begun["predict"].append(batch)

    def on_predict_batch_end(self, batch, logs=None):
        self.ended["predict"].append(batch)
        self.outputs.append(np.asarray(logs["outputs"]))


def data(batches: int, target: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    shape = batches * BATCH
    x = np.random.default_rng(3).normal(size=(shape, 4)).astype(np.float32)
    return x, np.full((shape, 1), target, np.float32)


def network(pipelined: bool = False, initializer="glorot_uniform") -> keras.Model:
    inputs = keras.Input((4,))
    dense = keras.layers.Dense(1, kernel_initializer=initializer)
    if pipelined:
        with keras.ipu.PipelineStage(0):
            hidden = keras.layers.Dense(4)(inputs)
        with keras.ipu.PipelineStage(1):
            outputs = dense(hidden)
    else:
        outputs = dense(inputs)
    model = keras.Model(inputs, outputs)
    if pipelined:
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=4)
    model.set_asynchronous_callbacks(True)
    return model


@pytest.mark.parametrize(("ipu_count", "pipelined"), [(1, False), (2, False), (2, True), (4, True)])
def test_each_step_of_each_replica_is_told(ipus, ipu_count, pipelined):
    replicas = ipu_count // 2 if pipelined else ipu_count
    x, y = data(8 * replicas)
    steps = [step for step in range(8) for _ in range(replicas)]
    with ipus(ipu_count).scope():
        model, heard = network(pipelined), Heard()
        options = {"batch_size": BATCH, "callbacks": [heard], "verbose": 0}
        model.fit(x, y, epochs=2, **options)
        model.evaluate(x, y, **options)
        predictions = model.predict(x, **options)
    assert heard.begun == heard.ended
    assert heard.ended == {"train": steps * 2, "test": steps, "predict": steps}
    np.testing.assert_array_equal(np.concatenate(heard.outputs), predictions)
    np.testing.assert_allclose(predictions, model(x), rtol=1e-4, atol=1e-5)


def test_steps_are_told_while_the_execution_goes_on(ipus):
    """The first is heard before the last has its data."""
    import threading

    import tensorflow as tf

    told = threading.Event()

    class Telling(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            told.set()

    def waits(i):
        return np.asarray(i < 3 or told.wait(60))

    x, y = data(1)
    batches = tf.data.Dataset.range(4).map(
        lambda i: (x, tf.where(tf.numpy_function(waits, [i], tf.bool), y, np.nan * y))
    )
    batches = batches.map(lambda x, y: (x, tf.ensure_shape(y, [BATCH, 1])))
    with ipus().scope():
        history = network().fit(batches, verbose=0, callbacks=[Telling()]).history
    assert np.isfinite(history["loss"]).all()


def test_a_program_that_is_only_compiled_ends(ipus):
    from tensorflow.python.ipu.utils import DeviceConnectionType

    strategy = ipus(
        device_connection__type=DeviceConnectionType.PRE_COMPILE, device_connection__version="ipu2"
    )
    x, y = data(8)
    with strategy.scope():
        model, heard = network(), Heard()
        model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[heard])
        assert not model.predict(x, batch_size=BATCH, callbacks=[heard]).any()
    assert heard.ended == {"train": [], "test": [], "predict": []}  # no step ran


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_a_failed_run_did_not_tell_is_not_told_in_the_next(ipus, replicas):
    class Failing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("the callback's own")

    with ipus(replicas).scope():
        model, heard = network(initializer="zeros"), Heard()
        with pytest.raises(RuntimeError, match="the callback's own"):
            model.fit(*data(8, 1.0), batch_size=BATCH, verbose=0, callbacks=[Failing()])
        model.fit(*data(8, 2.0), batch_size=BATCH, verbose=0, callbacks=[heard])
    assert heard.losses == [4.0] * 8


def test_a_list_of_callbacks_as_keras_makes_it_is_taken(ipus):
    x, y = data(8)
    with ipus().scope():
        model, heard = network(), Heard()
        history = model.fit(
            x, y, batch_size=BATCH, verbose=0,
            callbacks=keras.callbacks.CallbackList([heard], model=model),
        )  # fmt: skip
    assert heard.ended["train"] == list(range(8))
    assert len(history.history["loss"]) == 1
