"""Options of Keras models on IPUs: each has the effect it says, or is checked and changes nothing."""

from __future__ import annotations

import inspect
import logging

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu.ops import pipelining_ops

from softipu.frontends.tensorflow import pipeline_options


def dense(units: int, **options) -> keras.layers.Layer:
    return keras.layers.Dense(units, kernel_initializer=keras.initializers.Constant(0.5), **options)


def pipeline(*, dtype=None, last=None) -> keras.Model:
    inputs = keras.Input((4,), dtype=dtype)
    with keras.ipu.PipelineStage(0):
        hidden = dense(4, dtype=dtype)(inputs)
    with keras.ipu.PipelineStage(1):
        outputs = (last or dense(1, dtype=dtype))(hidden)
    return keras.Model(inputs, outputs)


def data(samples: int = 8, dtype=np.float32) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return random.normal(size=(samples, 4)).astype(dtype), np.ones((samples, 1), dtype)


def fit(model: keras.Model, optimizer="sgd", steps: int = 4, **options) -> dict[str, list[float]]:
    model.compile(optimizer, "mse", steps_per_execution=steps)
    return model.fit(*data(), batch_size=1, shuffle=False, verbose=0, **options).history


class Watching(keras.optimizers.SGD):
    """Notes what it is called with, and learns nothing."""

    supports_captured_grads = True

    def __init__(self) -> None:
        super().__init__(0.0)
        self.types: list[tf.DType] = []
        self.captured = tf.Variable(0.0)

    def apply_gradients(self, grads_and_vars, name=None, captured_grads=None):
        pairs = list(grads_and_vars)
        self.types += [gradient.dtype for gradient, _ in pairs]
        for found in (captured_grads or {}).values():
            self.captured.assign(tf.reduce_sum(tf.cast(found[0], tf.float32)))
        return super().apply_gradients([(tf.cast(g, v.dtype), v) for g, v in pairs], name)


@pytest.mark.parametrize("pipelined", [False, True])
def test_gradients_accumulate_in_the_type_that_was_asked_for(ipus, pipelined):
    optimizer = Watching()
    with ipus(2 if pipelined else 1).scope():
        if pipelined:
            model = pipeline(dtype="float16")
            model.set_pipelining_options(4, gradient_accumulation_dtype=lambda var: tf.float32)
        else:
            model = keras.Sequential(
                [keras.Input((4,), dtype="float16"), dense(1, dtype="float16")]
            )
            model.set_gradient_accumulation_options(4, dtype=np.float32)
        fit(model, optimizer)
    assert set(optimizer.types) == {tf.float32}


@pytest.mark.parametrize("accumulate", [False, True])
def test_captured_gradients_of_a_pipeline_are_the_last_ones_or_all(ipus, accumulate):
    from tensorflow.keras.ipu.layers import CaptureUpstreamGradients

    x, y = data(4)
    upstream = 2 * (x @ np.full((4, 4), 0.5) @ np.full((4, 1), 0.5) - y)[:, 0]
    optimizer = Watching()
    with ipus(2).scope():
        model = pipeline(last=CaptureUpstreamGradients(dense(1)))
        model.set_pipelining_options(4, gradient_accumulation_for_captured_grads=accumulate)
        model.compile(optimizer, "mse", steps_per_execution=4)
        model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
    expected = upstream.sum() if accumulate else upstream[-1]
    np.testing.assert_allclose(optimizer.captured.numpy(), expected, rtol=1e-5)


def test_an_accumulated_outfeed_changes_the_type_of_metrics_only(ipus):
    def losses(**options) -> list[float]:
        with ipus(2).scope():
            model = pipeline()
            model.set_pipelining_options(4, **options)
            return fit(model, epochs=2)["loss"]

    plain = losses()
    assert losses(accumulate_outfeed=True) == plain
    halves = losses(accumulate_outfeed=True, accumulate_outfeed_dtype=np.float16)
    assert halves == [float(np.float16(loss)) for loss in plain]

    def second(var) -> tf.DType:
        return tf.float16 if var.name.endswith(":2") else var.dtype

    assert losses(accumulate_outfeed=True, accumulate_outfeed_dtype=second) == plain


def test_a_weight_without_gradient_is_an_error(ipus):
    class Extra(keras.layers.Dense):
        def build(self, input_shape):
            self.extra = self.add_weight("extra", shape=())
            super().build(input_shape)

    with ipus().scope():
        model = keras.Sequential([Extra(1, input_shape=(4,))])
        with pytest.raises(ValueError, match="extra:0 has `None` for gradient"):
            fit(model, "adam")


def test_a_layer_in_two_stages_needs_both_on_one_ipu(ipus):
    def train(mapping: list[int]) -> None:
        inputs = keras.Input((4,))
        shared = dense(4)
        with keras.ipu.PipelineStage(0):
            hidden = shared(inputs)
        with keras.ipu.PipelineStage(1):
            outputs = shared(hidden)
        model = keras.Model(inputs, outputs)
        model.set_pipelining_options(4, device_mapping=mapping)
        fit(model)

    with ipus(2).scope():
        train([0, 0])
        with pytest.raises(tf.errors.FailedPreconditionError, match="on the same IPU"):
            train([0, 1])


def test_the_number_of_mini_batches_fits_the_schedule(ipus):
    from tensorflow.python.ipu.ops.pipelining_ops import PipelineSchedule

    with ipus(2).scope():
        model = pipeline()
        model.set_pipelining_options(2)
        with pytest.raises(tf.errors.FailedPreconditionError, match="a multiple of 4, but it is 2"):
            fit(model)
        model.set_pipelining_options(2, pipeline_schedule=PipelineSchedule.Sequential)
        fit(model)


def test_options_that_nothing_knows_are_refused_and_known_ones_are_silent(ipus, caplog):
    with ipus(2).scope(), caplog.at_level(logging.WARNING, logger="tensorflow"):
        model = pipeline()
        for setter in (
            model.set_gradient_accumulation_options,
            model.set_pipelining_options,
            model.set_infeed_queue_options,
            model.set_outfeed_queue_options,
        ):
            with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
                setter(nonsense=1)
        with pytest.raises(ValueError, match="optimizer state must be offloaded"):
            model.set_gradient_accumulation_options(
                4, replicated_optimizer_state_sharding=True, offload_weight_update_variables=False
            )
        model.set_infeed_queue_options(prefetch_depth=3)
        model.set_outfeed_queue_options(buffer_depth=3)
        model.set_gradient_accumulation_options(4, use_v2_gradient_accumulation_optimizer=True)
    assert not caplog.records


def test_data_without_batches_and_of_double_precision_are_refused(ipus, monkeypatch):
    from tf_keras.src.engine import base_layer_utils

    doubles = tf.data.Dataset.from_tensor_slices(data(dtype=np.float64)).batch(2, True)
    with ipus().scope():
        model = keras.Sequential([dense(1)])
        model.compile("sgd", "mse")
        with pytest.raises(TypeError, match=r"non-empty.*no samples.*dataset length is unknown"):
            model.fit(np.array([]), np.array([]))
        monkeypatch.setattr(base_layer_utils, "v2_dtype_behavior_enabled", lambda: False)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Unsupported datatype double"):
            model.fit(doubles, verbose=0)


def test_targets_of_one_axis_reach_the_loss_as_a_column(ipus):
    def loss(labels, predictions):
        assert labels.shape == predictions.shape == (2, 1)
        return tf.square(labels - predictions)

    x, y = data()
    with ipus().scope():
        model = keras.Sequential([dense(1)])
        model.compile("sgd", loss)
        model.fit(x, y[:, 0], batch_size=2, verbose=0)
        model.evaluate(x, y[:, 0], batch_size=2, verbose=0)


def test_steps_per_execution_may_be_the_cardinality_of_the_data(ipus):
    batches = tf.data.Dataset.from_tensor_slices(data()).batch(2, drop_remainder=True)
    with ipus().scope():
        model = keras.Sequential([dense(1)])
        model.compile("sgd", "mse", steps_per_execution=batches.cardinality())
        assert len(model.fit(batches, epochs=2, verbose=0).history["loss"]) == 2


def test_tensorboard_gets_the_graph_of_a_training_step(ipus, tmp_path):
    with ipus().scope():
        model = keras.Sequential([dense(3, name="first"), dense(1, name="second")])
        fit(model, callbacks=[keras.callbacks.TensorBoard(tmp_path, write_steps_per_second=True)])
    written = next((tmp_path / "train").glob("events*"))
    events = map(
        tf.compat.v1.Event.FromString, tf.data.TFRecordDataset(written).as_numpy_iterator()
    )
    (graph,) = [event.graph_def for event in events if event.graph_def]
    assert b"first" in graph
    assert b"second" in graph


def test_convolutions_of_halves_add_up_in_single_precision(ipus):
    ipus()
    with tf.Graph().as_default() as graph, tf.device("/device:IPU:0"):
        halves = tf.ones([1, 4, 4, 1], tf.float16)
        result = tf.nn.conv2d(halves, tf.ones([2, 2, 1, 1], tf.float16), 1, "VALID")
        inner = [op for op in graph.get_operations() if op.type == "Conv2D"]
    assert result.dtype == tf.float16
    assert [op.outputs[0].dtype for op in inner] == [tf.float32]


def test_options_of_a_pipeline_that_do_nothing_are_warned_about_once(ipus, caplog, monkeypatch):
    monkeypatch.setattr(pipeline_options, "_said", set())
    with ipus(2).scope(), caplog.at_level(logging.WARNING, logger="tensorflow"):
        model = pipeline()
        model.set_pipelining_options(4, replicated_weight_sharding=False, offload_weights=True)
        assert not caplog.records
        for _ in range(2):
            model.set_pipelining_options(4, replicated_weight_sharding=True)
    (told,) = caplog.records
    assert "set_pipelining_options: replicated_weight_sharding has no effect" in told.getMessage()


def test_the_table_of_pipeline_options_names_arguments_that_exist():
    arguments = set(inspect.signature(pipelining_ops.pipeline).parameters)
    assert set(pipeline_options.PIPELINE_OPTIONS) <= arguments
    offload = {name for name in arguments if name.startswith(("offload_", "replicated_"))}
    assert offload <= set(pipeline_options.PIPELINE_OPTIONS)
