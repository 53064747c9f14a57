"""Custom ops by registration, and codelet expressions."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu import custom_ops, vertex_edsl

from softipu.frontends.tensorflow import custom

OUTS = {"output_types": [tf.float32], "output_shapes": [[3]]}


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(custom, "_registered", {})


def test_an_op_that_is_not_registered_says_what_to_write():
    with pytest.raises(NotImplementedError, match=r"'Build' of 'libcube.so'") as error:
        custom_ops.precompiled_user_op([tf.zeros(3)], "/somewhere/libcube.so", outs=OUTS)
    assert "@custom.register('libcube.so', 'Build')" in str(error.value)


@pytest.mark.parametrize("op", [custom_ops.precompiled_user_op, custom_ops.cpu_user_operation])
def test_a_registered_function_runs_with_tensorflows_gradient(op):
    custom.register("libcube.so")(lambda x: x**3)
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        (y,) = op([x], "build/libcube.so", outs=OUTS)
    np.testing.assert_array_equal(y, [1, 8, 27])
    np.testing.assert_array_equal(tape.gradient(y, x), [3, 12, 27])


def test_an_own_gradient_sees_the_call_and_its_attributes():
    @custom.register("libop.so", "Scale")
    def scale(x, y, attributes=None):
        return [x * float(attributes), x + y]

    @scale.backward
    def scale_gradient(call, scaled, added):
        assert len(call.inputs) == len(call.outputs) == 2
        return [scaled * float(call.attributes), added * 0 + 7.0]

    @tf.function
    def step(x, y):
        outs = {"output_types": [tf.float32] * 2, "output_shapes": [[3]] * 2}
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            outputs = custom_ops.precompiled_user_op(
                [x, y], "libop.so", outs=outs, op_name="Scale",
                attributes="2", gradient_attributes="10",
            )  # fmt: skip
        return outputs, tape.gradient(outputs, [x, y])

    outputs, gradients = step(tf.ones(3), tf.ones(3))
    np.testing.assert_array_equal(outputs, [[2] * 3, [2] * 3])
    np.testing.assert_array_equal(gradients, [[10] * 3, [7] * 3])


@pytest.mark.parametrize("own", [False, True])
def test_only_the_chosen_inputs_have_gradients(own):
    op = custom.register("libop.so")(lambda x, y: x * y)
    if own:
        op.backward(lambda call, gradient: [gradient * call.inputs[0]])
    x, y = tf.fill([3], 2.0), tf.fill([3], 5.0)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        (z,) = custom_ops.precompiled_user_op(
            [x, y], "libop.so", outs=OUTS, inputs_with_gradients=[1]
        )
    first, second = tape.gradient(z, [x, y])
    assert first is None
    np.testing.assert_array_equal(second, [2, 2, 2])


def test_a_custom_op_runs_in_graphs_of_tensorflow_1():
    custom.register("libop.so")(lambda x: x * 2)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        (y,) = custom_ops.precompiled_user_op([x], "libop.so", outs=OUTS)
        (gradient,) = tf.gradients(y, x)
        values = session.run([y, gradient], {x: [1, 2, 3]})
    np.testing.assert_array_equal(values, [[2, 4, 6], [2, 2, 2]])


def test_outputs_that_are_not_as_declared_are_refused():
    custom.register("libop.so")(lambda x: tf.concat([x, x], 0))
    with pytest.raises(
        ValueError, match=r"shape \(6,\), but outs declares float32 of shape \(3,\)"
    ):
        custom_ops.precompiled_user_op([tf.zeros(3)], "libop.so", outs=OUTS)


def test_attributes_are_strings():
    with pytest.raises(ValueError, match="Expected attributes to be a 'str' type"):
        custom_ops.cpu_user_operation([], "libop.so", attributes=b"1")


def test_a_codelet_expression_is_elementwise_and_broadcasts():
    a, b, c = np.arange(8.0)[:, None], np.array([3.0]), np.arange(8.0)[None]
    a, b, c = (x.astype(np.float32) for x in (a, b, c))
    result = custom_ops.codelet_expression_op(lambda x, y, z: abs(-x) * x + y * z - 2, a, b, c)
    np.testing.assert_array_equal(result, a * a + b * c - 2)


def test_expressions_can_name_values_and_choose():
    def expression(x, y):
        return vertex_edsl.let(x + y, lambda s: vertex_edsl.condition(y, s * s, -s))

    result = custom_ops.codelet_expression_op(
        expression, tf.constant([1.0, 2.0]), tf.constant([0.0, 1.0])
    )
    np.testing.assert_array_equal(result, [-1.0, 9.0])
