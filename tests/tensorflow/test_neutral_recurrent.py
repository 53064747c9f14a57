"""Recurrent layers of Keras: loops that carry lists of tensors, and gradients that run as often."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from tensorflow import keras

import softipu
from softipu.errors import EstimateSourceUnknown
from softipu.frontends.tensorflow import neutral_programs
from softipu.frontends.tensorflow.neutral_hlo import shape_of
from softipu.graph import Phase
from softipu.machine import estimate
from softipu.machine.rescale import with_micro_batch

LENGTH, BATCH = 12, 4
WORDS, CLASSES = np.zeros((2 * BATCH, LENGTH), np.int32), np.zeros(2 * BATCH, np.int32)


def recurrent(layer, optimizer="sgd", batch=BATCH):
    words = keras.Input((LENGTH,), batch_size=batch, dtype="int32")
    x = layer(keras.layers.Embedding(50, 16)(words))
    model = keras.Model(words, keras.layers.Dense(3)(x))
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def turns(graph, phase):
    return [op.attributes["count"] for op in graph.ops if op.kind == "loop" and op.phase is phase]


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN])
def test_a_recurrent_layer_turns_once_for_each_word_both_ways(ipus, layer):
    with ipus().scope():
        model = recurrent(layer(16))
        model.fit(WORDS, CLASSES, batch_size=BATCH, verbose=0)
        model.predict(WORDS, batch_size=BATCH)
    graph, _ = neutral_programs.of_model(model, "predict")
    assert turns(graph, Phase.FORWARD) == [LENGTH]
    graph, _ = neutral_programs.of_model(model)
    assert turns(graph, Phase.FORWARD) + turns(graph, Phase.BACKWARD) == [LENGTH, LENGTH]
    found = softipu.estimate(model, None, training=True)
    assert not found.unknown
    assert found.throughput < softipu.estimate(model, None).throughput


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU])
def test_samples_are_followed_into_the_steps_of_a_loop(ipus, layer):
    def of(batch):
        with ipus().scope():
            model = recurrent(layer(16), batch=batch)
            model.fit(WORDS[:batch], CLASSES[:batch], batch_size=batch, verbose=0)
        return neutral_programs.of_model(model)

    other, (anew, settings) = with_micro_batch(of(BATCH)[0], 7), of(7)
    assert other is not None
    found, expected = estimate(other, settings), estimate(anew, settings)
    assert found.cycles == expected.cycles
    assert found.memory == expected.memory


def test_rows_of_a_table_that_adam_adds_up_first_are_bounded(ipus):
    with ipus().scope():
        model = recurrent(keras.layers.LSTM(16), "adam")
        model.fit(WORDS, CLASSES, batch_size=BATCH, verbose=0)
    found = softipu.estimate(model, None, training=True)
    assert not found.unknown
    assert found.fits


def test_a_bound_is_what_has_to_be_held():
    assert shape_of("s32[<=256,3]{1,0}").sizes == (256, 3)


@pytest.mark.parametrize("beside", ["keras", "torch"])
def test_a_model_for_no_ipu_says_how_it_gets_one(beside):
    """Also where PyTorch is there, whose functions can be estimated as they are."""
    importlib.import_module(beside)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(EstimateSourceUnknown, match="in the scope of an ipu"):
        softipu.estimate(model, None)
