"""fit, evaluate and predict on IPUs against the same model in plain Keras, and what callbacks see."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras


def build() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 1)),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )


def compiled(steps: int = 1) -> keras.Model:
    network = build()
    network.compile(
        keras.optimizers.Adam(lr=0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps,
    )
    return network


def data(samples: int = 32) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    images = random.normal(size=(samples, 8, 8, 1)).astype(np.float32)
    return images, random.integers(0, 3, samples).astype(np.int32)


def test_fit_evaluate_predict_as_plain_keras(ipus):
    x, y = data()
    plain = compiled()
    start = plain.get_weights()
    options = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
    expected = plain.fit(x, y, validation_data=(x, y), **options).history
    with ipus().scope():
        ours = compiled(steps=4)
        ours.set_weights(start)
        history = ours.fit(x, y, validation_data=(x, y), **options).history
        results = ours.evaluate(x, y, batch_size=4, verbose=0)
        predictions = ours.predict(x, batch_size=4)
    assert history.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(
        results, plain.evaluate(x, y, batch_size=4, verbose=0), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        predictions, plain.predict(x, batch_size=4, verbose=0), rtol=1e-2, atol=1e-3
    )


def test_replicated_predictions_keep_their_order(ipus):
    x, y = data()
    plain = compiled()
    with ipus(4).scope():
        ours = compiled(steps=2)
        ours.set_weights(plain.get_weights())
        predictions = ours.predict(x, batch_size=4)
        loss, _ = ours.evaluate(x, y, batch_size=4, verbose=0)
    np.testing.assert_allclose(
        predictions, plain.predict(x, batch_size=4, verbose=0), rtol=1e-4, atol=1e-5
    )
    assert np.isfinite(loss)


@pytest.mark.parametrize("method", ["NONE", "LIST", "SUM", "MEAN"])
def test_metrics_of_replicas(ipus, method):
    x, y = data(16)
    with ipus(2).scope():
        network = compiled(steps=2)
        network.set_replication_options(replicated_metric_reduction_method=method)
        logs = network.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)
    # Batches 0 and 2 went to the first replica, 1 and 3 to the second.
    parts = (np.r_[0:4, 8:12], np.r_[4:8, 12:16])
    each = [loss_of(network, x[order], y[order]) for order in parts]
    expected = {
        "NONE": each[-1], "LIST": each, "SUM": sum(each), "MEAN": sum(each) / 2
    }[method]  # fmt: skip
    np.testing.assert_allclose(logs["loss"], expected, rtol=1e-4)


def loss_of(network, x, y) -> float:
    logits = network(x, training=False)
    return float(keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, logits))


class Heard(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches: list[tuple[str, int]] = []

    def on_train_batch_begin(self, batch, logs=None):
        self.batches.append(("begin", batch))

    def on_train_batch_end(self, batch, logs=None):
        assert np.isfinite(float(logs["loss"]))
        self.batches.append(("end", batch))


def test_callbacks_hear_of_executions_or_of_each_step(ipus):
    x, y = data(32)
    with ipus().scope():
        network, heard = compiled(steps=4), Heard()
        network.fit(x, y, batch_size=4, verbose=0, callbacks=[heard])
        assert heard.batches == [("begin", 0), ("end", 3), ("begin", 4), ("end", 7)]
        network.set_asynchronous_callbacks(True)
        heard = Heard()
        network.fit(x, y, batch_size=4, verbose=0, callbacks=[heard])
        assert heard.batches == [(what, i) for i in range(8) for what in ("begin", "end")]


def test_weights_set_by_the_host_reach_all_replicas(ipus):
    x, y = data(16)
    with ipus(2).scope():
        network = compiled(steps=2)
        network.fit(x, y, batch_size=4, verbose=0)
        network.set_weights([np.zeros_like(w) for w in network.get_weights()])
        predictions = network.predict(x, batch_size=4)
    np.testing.assert_array_equal(predictions, np.zeros_like(predictions))


def test_checkpoints_and_saved_models(ipus, tmp_path):
    x, y = data(16)
    with ipus().scope():
        network = compiled(steps=2)
        network.fit(x, y, batch_size=4, verbose=0)
        before = network.predict(x, batch_size=4)
        network.save_weights(str(tmp_path / "weights"))
        network.save(str(tmp_path / "model"))
        other = compiled(steps=2)
        other.load_weights(str(tmp_path / "weights"))
        np.testing.assert_allclose(other.predict(x, batch_size=4), before, rtol=1e-5)
        loaded = keras.models.load_model(str(tmp_path / "model"))
        np.testing.assert_allclose(loaded.predict(x, batch_size=4), before, rtol=1e-5)
    plain = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(plain(tf.constant(x)), before, rtol=1e-4, atol=1e-5)


def test_mixed_precision(ipus):
    x, y = data(16)
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with ipus().scope():
            network = compiled(steps=2)
            history = network.fit(x, y, batch_size=4, epochs=2, verbose=0)
            assert network.predict(x, batch_size=4).dtype == np.float16
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert np.isfinite(history.history["loss"]).all()


def test_telemetry_counts_what_goes_in_and_out(ipus):
    from softipu import devices
    from softipu.frontends.tensorflow import system

    x, y = data()
    with ipus(2).scope():
        ours = compiled(steps=4)
        ours.fit(x, y, batch_size=4, epochs=1, shuffle=False, verbose=0)
        (device,) = system._state.devices.values()
        device._lease.telemetry.flush()
        counters = next(status.counters for status in devices.status() if status.record)
    assert counters.busy_seconds > 0
    assert counters.host_bytes_in == x.nbytes + y.nbytes
    assert counters.host_bytes_out == 2 * 4 * 2 * 4  # replicas, steps, loss and accuracy, float32


def test_threads_may_predict_with_the_same_model(ipus):
    """Also with other batches, and while others begin and end."""
    strategy = ipus()
    x = np.random.default_rng(2).normal(size=(16, 4)).astype(np.float32)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(3, input_shape=(4,))])
        model.compile(steps_per_execution=2)
        expected = model.predict(x, batch_size=4)

    def predict(batch_size):
        with strategy.scope():
            results = [model.predict(x, batch_size=batch_size) for _ in range(15)]
        return max(np.abs(result - expected).max() for result in results)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert max(pool.map(predict, [4, 4, 2])) < 1e-5
