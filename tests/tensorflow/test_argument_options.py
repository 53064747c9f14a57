"""Arguments that do nothing here: one warning each, when they ask for something."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import nn_ops, rnn_ops

from ipu_tensorflow_addons.keras import layers
from softipu.frontends.tensorflow import argument_options


@pytest.fixture
def said(monkeypatch) -> list[str]:
    """The warnings of a test."""
    texts: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record):
            texts.append(record.getMessage())

    monkeypatch.setattr(argument_options, "_said", set())
    handler = Keeping(logging.WARNING)
    logger = logging.getLogger("tensorflow")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices([1.0, 2.0])


def recurrent(**options):
    layer = rnn_ops.PopnnLSTM(2, **options)
    return layer(np.ones((3, 1, 2), np.float32))


def in_scope(scope, *arguments):
    with tf.Graph().as_default(), scope(*arguments):
        return tf.constant(1.0)


def set_feeds(**options):
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.set_infeed_queue_options(optimise_latency=options["optimise_latency"])
        model.set_outfeed_queue_options(**options)


IN, OUT = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue
CONV = {"availableMemoryProportion": "0.1"}


@pytest.mark.parametrize(
    ("use", "names"),
    [
        (lambda: IN(dataset(), optimise_latency=True), ["IPUInfeedQueue: optimise_latency"]),
        (lambda: OUT(optimise_latency=True, buffer_depth=5),
         ["IPUOutfeedQueue: optimise_latency", "IPUOutfeedQueue: buffer_depth"]),
        (lambda: set_feeds(optimise_latency=True, buffer_depth=5),
         ["IPUInfeedQueue: optimise_latency", "IPUOutfeedQueue: optimise_latency",
          "IPUOutfeedQueue: buffer_depth"]),
        (nn_ops.multi_conv(lambda: None, options=CONV), ["nn_ops.multi_conv: options"]),
        (lambda: recurrent(options='{"x": 1}', partials_dtype=tf.float16),
         ["PopnnLSTM, PopnnGRU and their kin: options",
          "PopnnLSTM, PopnnGRU and their kin: partials_dtype"]),
        (lambda: layers.LSTM(2, options_bwd={"x": 1}),
         ["PopnnLSTM, PopnnGRU and their kin: options_bwd"]),
        (lambda: in_scope(ipu.scopes.stochastic_rounding, True),
         ["scopes.stochastic_rounding: override"]),
        (lambda: in_scope(ipu.scopes.partials_type, np.float16),
         ["scopes.partials_type: override_type"]),
    ],
)  # fmt: skip
def test_an_argument_that_does_nothing_is_named_once(ipus, said, use, names):
    ipus(1)
    use()
    use()
    named = [text.partition(" has no effect on a software IPU: ")[0] for text in said]
    assert sorted(named) == sorted(names)


def test_plain_uses_warn_of_nothing(ipus, said):
    ipus(1)
    IN(dataset(), prefetch_depth=7)
    OUT(buffer_depth=3)
    nn_ops.multi_conv(lambda: None)()
    recurrent(options="{}", partials_dtype=tf.float32)
    layers.GRU(2)
    in_scope(ipu.scopes.stochastic_rounding, False)
    in_scope(ipu.scopes.partials_type, np.float32)
    ipu.utils.reset_ipu_seed(3, experimental_identical_replicas=True)
    assert said == []
