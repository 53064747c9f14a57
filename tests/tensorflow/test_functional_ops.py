"""Outlined functions, barriers and captured gradients."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.eager.backprop import GradientCaptureContext, GradientCaptureTape
from tensorflow.python.ipu.ops import op_util
from tensorflow.python.ipu.ops.grad_util_ops import capture_upstream_gradients


def test_an_outlined_function_is_a_plain_call():
    w = tf.Variable([2.0, 3.0])
    calls = tf.Variable(0)

    @ipu.outlined_function(keep_input_layouts=False, name="scaled")
    def scaled(x, y):
        calls.assign_add(1)
        return {"product": x * w, "none": None, "sum": x + y}

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            first = scaled(x, 1.0)
            second = scaled(first["product"], first["sum"])
            loss = tf.reduce_sum(second["product"])
        assert second["none"] is None
        return loss, tape.gradient(loss, [x, w])

    loss, (dx, dw) = step(tf.constant([1.0, 1.0]))
    assert loss.numpy() == 4 + 9
    assert calls.numpy() == 2
    np.testing.assert_array_equal(dx, [4, 9])
    np.testing.assert_array_equal(dw, [4, 6])


def test_an_outlined_function_makes_variables_in_graphs_of_tensorflow_1():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:

        @ipu.outlined_function
        def layer(x):
            with v1.variable_scope("layer", reuse=v1.AUTO_REUSE, use_resource=True):
                w = v1.get_variable("w", [], initializer=v1.constant_initializer(3.0))
            return x * w

        y = layer(layer(tf.constant(2.0)))
        (w,) = v1.trainable_variables()
        gradients = tf.gradients(y, [w])
        session.run(v1.global_variables_initializer())
        assert session.run([y, *gradients]) == [18.0, 12.0]


def test_a_barrier_keeps_structure_values_and_gradients():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        out = ipu.control_flow_ops.barrier({"a": x * 2, "b": [x, tf.constant(1)]}, True)
    np.testing.assert_array_equal(out["a"], [2, 4])
    assert out["b"][1].dtype == tf.int32
    np.testing.assert_array_equal(tape.gradient(out["a"], x), [2, 2])


def test_captured_gradients_are_those_of_the_activation():
    x = tf.Variable(0.5)

    @tf.function
    def step():
        with GradientCaptureTape() as tape:
            inner = capture_upstream_gradients(x**2, tag="inner")
            y = tf.tanh(inner)
        return tape.gradient(y, x), tape.captured_gradients, y

    gradient, captured, y = step()
    np.testing.assert_allclose(captured["inner"][0], 1 - y**2)
    np.testing.assert_allclose(gradient, (1 - y**2) * 2 * 0.5)


def test_a_context_captures_inside_outlined_functions():
    @ipu.outlined_function
    def squared(v):
        return capture_upstream_gradients([v, 2 * v], tag="pair")[1] ** 2

    with GradientCaptureContext() as context, tf.Graph().as_default(), tf.compat.v1.Session() as s:
        x = tf.constant(3.0)
        tf.gradients(squared(x), x)
        assert s.run(context.captured_gradients["pair"][1]) == 12.0


def test_gradients_without_a_context_are_refused_and_contexts_end():
    def gradient(tape):
        with tape:
            y = capture_upstream_gradients(x, tag="t") * 2
        return tape.gradient(y, x)

    x = tf.Variable(1.0)
    with GradientCaptureTape():
        pass
    assert gradient(GradientCaptureTape()).numpy() == 2.0
    with pytest.raises(RuntimeError, match="may only be used within the context of"):
        gradient(tf.GradientTape())


def test_a_tag_belongs_to_one_place():
    x = tf.Variable(1.0)
    with GradientCaptureTape() as tape:
        y = capture_upstream_gradients(capture_upstream_gradients(x, "t"), "t")
    with pytest.raises(ValueError, match="'t' is used twice"):
        tape.gradient(y, x)


def test_the_iteration_counter_needs_an_iteration():
    with pytest.raises(RuntimeError, match="pipeline"):
        ipu.internal_ops.get_current_iteration_counter()
    with ipu.internal_ops.iteration_counter(tf.constant(3, tf.int64)):
        assert ipu.internal_ops.get_current_iteration_counter().numpy() == 3


def test_gradients_accumulate_in_the_type_that_was_asked_for():
    w = tf.Variable([1.0, 2.0], dtype=tf.float16)

    def accumulate(dtype):
        @tf.function
        def step(g):
            pairs = [(g, w), (None, w)]
            (total, _), (nothing, _) = op_util.accumulate_gradients(pairs, dtype, 0.5, 2.0)
            assert nothing is None
            return total

        return [step(tf.constant([1.0, 3.0], tf.float16)) for _ in range(2)][-1]

    for dtype, expected in [(None, tf.float16), (lambda v: tf.float32, tf.float32)]:
        total = accumulate(dtype)
        assert total.dtype == expected
        np.testing.assert_array_equal(total, [3.0, 9.0])


def test_options_and_activations_have_names():
    assert op_util.bool_to_three_state(None, "THREESTATE_ON") == "THREESTATE_ON"
    assert op_util.bool_to_three_state(False) == "THREESTATE_OFF"
    assert op_util.get_activation_name(tf.keras.activations.tanh) == "tanh"
    assert op_util.get_activation_name(tf.tanh) == "tanh"
    with pytest.raises(TypeError, match="Unrecognized function"):
        op_util.get_activation_name(np.testing.assert_array_equal)
