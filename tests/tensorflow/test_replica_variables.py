"""Variables of replicas: what each keeps of its own, and when all begin from one value again."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import replication_ops

from softipu.frontends.tensorflow import replicas

BATCH = 4


def counter(variable: tf.Variable):
    """A program of two replicas; each adds its number to the variable, the first thus nothing."""

    def body():
        variable.assign_add(tf.cast(replication_ops.replication_index(), tf.float32))
        return tf.identity(variable)

    with replicas.trace(2) as current:
        traced = tf.function(body).get_concrete_function()
    program = replicas.Replicated(traced, current, 2)
    return lambda: [float(outputs[0]) for outputs in program([])]


def test_replicas_keep_what_they_wrote_from_run_to_run():
    variable = tf.Variable(0.0)  # a program does not keep its variables alive
    run = counter(variable)
    assert [run(), run(), run()] == [[0, 1], [0, 2], [0, 3]]


def restored(variable: tf.Variable, folder) -> None:
    checkpoint = tf.train.Checkpoint(variable=variable)
    checkpoint.restore(checkpoint.save(str(folder / "checkpoint")))


@pytest.mark.parametrize(
    "write",
    [
        lambda variable, _: variable.assign(0.0),
        lambda variable, _: variable.assign_add(0.0, read_value=False),
        lambda variable, _: variable[...].assign(0.0),
        restored,
    ],
    ids=["assign", "assign_add", "slice", "checkpoint"],
)
def test_what_the_host_writes_reaches_all_even_if_the_first_had_that_value(tmp_path, write):
    variable = tf.Variable(0.0)
    run = counter(variable)
    assert run() == [0, 1]
    write(variable, tmp_path)
    assert run() == [0, 1]


def test_what_another_function_writes_reaches_all():
    variable = tf.Variable(0.0)
    run = counter(variable)
    run()
    tf.function(lambda: variable.assign(5.0))()
    assert run() == [5, 6]


def test_a_program_that_is_gone_is_not_told_of_writes():
    variable = tf.Variable(0.0)
    counter(variable)()
    gc.collect()
    assert not variable.handle._softipu_copies


def one_hot(wrong_for: int) -> tuple[np.ndarray, np.ndarray]:
    """Eight batches for a model that gives its input back; all of a replica's labels are wrong."""
    labels = np.arange(8 * BATCH) % 3
    x = np.eye(3, dtype=np.float32)[labels]
    of_replica = (np.arange(8 * BATCH) // BATCH) % 2
    return x, np.where(of_replica == wrong_for, (labels + 1) % 3, labels).astype(np.int32)


def echo() -> keras.Model:
    model = keras.Sequential(
        [keras.layers.Dense(3, input_shape=(3,), kernel_initializer="identity")]
    )
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=2,
    )
    model.set_replication_options(replicated_metric_reduction_method="LIST")
    return model


@pytest.mark.parametrize("wrong_for", [0, 1])
def test_metrics_begin_anew_in_all_replicas_with_each_evaluation(ipus, wrong_for):
    x, y = one_hot(wrong_for)
    expected = [0.0, 1.0] if wrong_for == 0 else [1.0, 0.0]
    with ipus(2).scope():
        model = echo()
        for _ in range(3):
            logs = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
            assert logs["accuracy"].tolist() == expected


@pytest.mark.parametrize("wrong_for", [0, 1])
def test_metrics_begin_anew_in_all_replicas_with_each_epoch(ipus, wrong_for):
    x, y = one_hot(wrong_for)
    expected = [0.0, 1.0] if wrong_for == 0 else [1.0, 0.0]
    with ipus(2).scope():
        model = echo()
        history = model.fit(
            x, y, validation_data=(x, y), batch_size=BATCH, epochs=3, shuffle=False, verbose=0
        ).history
    for name in ("accuracy", "val_accuracy"):
        assert [np.asarray(values).tolist() for values in history[name]] == [expected] * 3


def test_a_model_follows_the_ipus_that_are_configured(ipus):
    x, y = one_hot(wrong_for=0)
    strategy = ipus(1)
    with strategy.scope():
        model = echo()
        assert np.shape(model.evaluate(x, y, batch_size=BATCH, verbose=0)[1]) == ()
    ipus(2)
    with strategy.scope():
        found = model.evaluate(x, y, batch_size=BATCH, verbose=0)[1]
        assert np.asarray(found).tolist() == [0.0, 1.0]
        model.fit(x, y, batch_size=BATCH, verbose=0)
        assert model.predict(x, batch_size=BATCH).shape == (8 * BATCH, 3)
    ipus(1)
    with strategy.scope():
        assert model.evaluate(x, y, batch_size=BATCH, verbose=0)[1] == 0.5
