"""Modelled cycles of TensorFlow programs: in the telemetry, and logged where a flag asks."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

import softipu
from softipu import devices
from softipu.frontends.tensorflow import system

v1 = tf.compat.v1

X = np.ones((32, 12), np.float32)


@pytest.fixture
def logged(monkeypatch, caplog):
    """The cycles in the log, which the flag asks for."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=0")
    caplog.set_level(logging.INFO)

    def found() -> list[int]:
        return [int(n) for n in re.findall(r"Cycle count: (\d+) \(modelled", caplog.text)]

    return found


def counted() -> int:
    system._state.devices[0]._lease.telemetry.flush()
    (status,) = (status for status in devices.status() if status.counters is not None)
    return status.counters.cycles


def dense():
    model = keras.Sequential([keras.Input((12,), batch_size=4), keras.layers.Dense(4)])
    model.compile("sgd", "mse", steps_per_execution=4)
    return model


def test_each_execution_of_a_keras_model_is_logged_and_counted(ipus, logged):
    with ipus(1).scope():
        model = dense()
        model.predict(X, batch_size=4, verbose=0)  # two executions of four steps
        once = round(softipu.estimate(model).cycles.total)
    assert logged() == [once, once]
    assert counted() == 2 * once > 0


def test_a_shorter_execution_costs_less(ipus, logged):
    with ipus(1).scope():
        model = dense()
        model.predict(X[:16], batch_size=4, verbose=0)
        model._steps_per_execution.assign(2)
        model.predict(X[:8], batch_size=4, verbose=0)
    four, two = logged()
    assert two == pytest.approx(four / 2, abs=1)


def test_training_counts_an_update_once_for_all_its_micro_batches(ipus, logged):
    with ipus(1).scope():
        model = dense()
        model.set_gradient_accumulation_options(4)
        model.fit(X, np.zeros((32, 4), np.float32), batch_size=4, verbose=0)
        once = round(softipu.estimate(model, training=True).cycles.total)
    assert logged() == [once, once]


@pytest.mark.parametrize("count", [1, 2])
def test_functions_are_logged_and_counted_with_each_call(ipus, logged, count):
    strategy = ipus(count)
    weights = tf.Variable(tf.ones((12, 4)))

    @tf.function
    def program(x):
        return x @ weights

    with strategy.scope():
        for _ in range(3):
            strategy.run(program, [tf.constant(X)])
    once, *others = logged()
    assert others == [once, once]
    assert once > 0


def test_a_session_counts_only_the_programs_that_it_ran(ipus, logged):
    with tf.Graph().as_default():
        x = tf.constant(X)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (small,) = ipu.ipu_compiler.compile(lambda x: x @ tf.ones((12, 4)), [x])
            (large,) = ipu.ipu_compiler.compile(lambda x: x @ tf.ones((12, 4096)), [x])
        after = tf.reduce_sum(large)
        ipus(1)
        with v1.Session() as session:
            session.run(small)
            session.run(x)
            session.run([after.op, small])
    first, *both = logged()
    assert len(both) == 2
    assert min(both) == first < max(both)


def test_nothing_is_logged_or_counted_unasked_or_on_the_ipu_model(ipus, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    with ipus(1).scope():
        dense().predict(X, batch_size=4, verbose=0)
    assert counted() == 0  # nobody has asked for an estimate
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=0 --use_ipu_model")
    with ipus(1, ipu_model__version="ipu2").scope():
        dense().predict(X, batch_size=4, verbose=0)
    assert "Cycle count" not in caplog.text


def test_a_program_without_an_estimate_runs_and_says_so_once(ipus, logged, caplog, monkeypatch):
    from softipu.frontends.tensorflow import neutral_programs

    def fails(*_):
        raise RuntimeError("no graph today")

    monkeypatch.setattr(neutral_programs, "of_execution", fails)
    with ipus(1).scope():
        dense().predict(X, batch_size=4, verbose=0)
    assert logged() == []
    assert caplog.text.count("no graph today") == 1
