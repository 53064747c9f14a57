"""Validation within fit: its data are its own, and need not suit what training asks for."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

BATCH, STEPS = 2, 8


def data(batches: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(batches)
    shape = batches * BATCH
    return random.normal(size=(shape, 4)).astype(np.float32), np.ones((shape, 1), np.float32)


def network(pipelined: bool) -> keras.Model:
    """Accumulates the gradients of eight steps."""
    inputs = keras.Input((4,))
    if pipelined:
        with keras.ipu.PipelineStage(0):
            hidden = keras.layers.Dense(4)(inputs)
        with keras.ipu.PipelineStage(1):
            outputs = keras.layers.Dense(1)(hidden)
        model = keras.Model(inputs, outputs)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    else:
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(4)(inputs)))
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=8)
    model.set_replication_options(replicated_metric_reduction_method="MEAN")
    model.compile(keras.optimizers.SGD(0.001), "mse", steps_per_execution=STEPS)
    return model


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("ipu_count", "pipelined"), [(1, False), (2, False), (2, True), (4, True)])
def test_fewer_batches_than_an_update_takes(ipus, ipu_count, pipelined, asynchronous):
    replicas = ipu_count // 2 if pipelined else ipu_count
    x, y = data(4 * replicas)
    with ipus(ipu_count).scope():
        model = network(pipelined)
        model.set_asynchronous_callbacks(asynchronous)
        history = model.fit(
            *data(32 * replicas), batch_size=BATCH, epochs=2, verbose=0,
            validation_data=(x, y), validation_batch_size=BATCH,
        ).history  # fmt: skip
    expected = np.mean(np.square(model(x) - y))
    np.testing.assert_allclose(history["val_loss"][-1], expected, rtol=1e-4)
    assert history["loss"][1] < history["loss"][0]


def test_what_training_asks_for_is_still_checked(ipus):
    with ipus().scope():
        model = network(pipelined=False)
        with pytest.raises(RuntimeError, match=r"\(set to 4\) is not divisible"):
            model.fit(*data(4), batch_size=BATCH, verbose=0, validation_data=data(32))


def test_callbacks_go_on_expecting_the_steps_of_training(ipus):
    class Expecting(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.steps = []

        def on_epoch_end(self, epoch, logs=None):
            self.steps.append(self.params["steps"])

    with ipus().scope():
        model, callback = network(pipelined=False), Expecting()
        model.set_asynchronous_callbacks(True)
        model.fit(
            *data(32), batch_size=BATCH, epochs=3, verbose=0, callbacks=[callback],
            validation_data=data(4), validation_batch_size=BATCH,
        )  # fmt: skip
    assert callback.steps == [32, 32, 32]


def test_a_callback_may_evaluate_with_data_of_its_own(ipus):
    class Evaluating(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.evaluate(*data(2), batch_size=BATCH, verbose=0)

    with ipus(2).scope():
        model = network(pipelined=True)
        model.set_pipelining_options(
            pipeline_schedule=keras_schedule().Sequential  # any number of batches
        )
        history = model.fit(
            *data(32), batch_size=BATCH, epochs=2, verbose=0, callbacks=[Evaluating()],
            validation_data=data(4), validation_batch_size=BATCH,
        ).history  # fmt: skip
    assert np.isfinite(history["val_loss"]).all()


def keras_schedule():
    from tensorflow.python.ipu.ops.pipelining_ops import PipelineSchedule

    return PipelineSchedule
