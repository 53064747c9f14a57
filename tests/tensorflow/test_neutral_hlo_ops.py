"""TensorFlow's operators, traced to HLO by TensorFlow itself, become the ops that an IPU runs."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from softipu.frontends.tensorflow import hlo
from softipu.frontends.tensorflow.neutral import graph_of_hlo
from softipu.graph import KINDS, Role
from softipu.machine import estimate
from softipu.machine.settings import Settings


def graph_of(function, *shapes, dtype=tf.float32):
    specs = [
        shape if isinstance(shape, tf.TensorSpec) else tf.TensorSpec(shape, dtype)
        for shape in shapes
    ]
    return graph_of_hlo(hlo.of_function(function, *specs), inputs=len(specs))


def work(graph):
    """Kind and function of each op that takes time."""
    ops = [op for op in graph.ops if not KINDS[op.kind].free]
    return [
        (op.kind, op.attributes["function"]) if "function" in op.attributes else (op.kind, "")
        for op in ops
    ]


def only(graph):
    (op,) = [op for op in graph.ops if not KINDS[op.kind].free]
    return op


def ints(*shape):
    return tf.TensorSpec(shape, tf.int32)


UNARY = {
    "abs": tf.abs, "ceil": tf.math.ceil, "cos": tf.cos, "erf": tf.math.erf, "erfc": tf.math.erfc,
    "exp": tf.exp, "expm1": tf.math.expm1, "floor": tf.floor, "isfinite": tf.math.is_finite,
    "log": tf.math.log, "log1p": tf.math.log1p, "neg": tf.negative, "relu": tf.nn.relu,
    "relu6": tf.nn.relu6, "rsqrt": tf.math.rsqrt, "sigmoid": tf.sigmoid, "sign": tf.sign,
    "sin": tf.sin, "softplus": tf.nn.softplus, "sqrt": tf.sqrt, "square": tf.square,
    "tanh": tf.tanh, "elu": tf.nn.elu, "selu": tf.nn.selu, "leaky_relu": tf.nn.leaky_relu,
    "round": tf.round, "asinh": tf.asinh, "acosh": tf.acosh, "atanh": tf.atanh,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_tensor_is_one_op_whatever_xla_makes_of_it(name):
    op = only(graph_of(UNARY[name], (4, 8)))
    assert (op.kind, op.attributes["function"]) == ("elementwise", name)
    assert len(op.inputs) == 1


BINARY = {
    "add": tf.add, "sub": tf.subtract, "mul": tf.multiply, "div": tf.divide,
    "maximum": tf.maximum, "minimum": tf.minimum, "pow": tf.pow, "atan2": tf.atan2,
    "compare": tf.less,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_tensors_is_one_op(name):
    op = only(graph_of(BINARY[name], (4, 8), (4, 8)))
    assert (op.kind, op.attributes["function"]) == ("elementwise", name)
    assert len(op.inputs) == 2


def test_a_number_is_part_of_the_code_and_no_operand():
    op = only(graph_of(lambda x: 3.0 * x, (4, 8)))
    assert len(op.inputs) == 1


def test_a_broadcast_operand_stays_small():
    graph = graph_of(tf.multiply, (4, 8), (8,))
    op = only(graph)
    assert sorted(graph.tensors[name].elements for name in op.inputs) == [8, 32]


@pytest.mark.parametrize("nothing", [lambda x: x + 0.0, lambda x: x * 1.0, tf.identity])
def test_what_does_nothing_takes_no_time(nothing):
    assert work(graph_of(nothing, (4, 8))) == []


def test_arithmetic_of_constants_is_done_when_compiling():
    graph = graph_of(lambda x: x * (tf.range(8, dtype=tf.float32) / 3.0 + 1.0), (4, 8))
    assert work(graph) == [("elementwise", "mul")]
    assert [t.shape for t in graph.of_role(Role.CONSTANT)] == [(8,)]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: tf.nn.softmax(x), [("softmax", "softmax")]),
        (lambda x: tf.nn.log_softmax(x), [("softmax", "log_softmax")]),
        (lambda x: tf.nn.gelu(x), [("elementwise", "gelu")]),
        (lambda x: tf.nn.gelu(x, approximate=True), [("elementwise", "gelu")]),
        (lambda x: tf.reduce_sum(x, 1), [("reduce", "sum")]),
        (lambda x: tf.reduce_mean(x, 0), [("reduce", "mean")]),
        (lambda x: tf.reduce_max(x), [("reduce", "max")]),
        (lambda x: tf.reduce_prod(x, 1), [("reduce", "prod")]),
        (lambda x: tf.argmax(x, 1), [("reduce", "argmax")]),
        (lambda x: tf.cumsum(x, 1), [("scan", "cumsum")]),
        (lambda x: tf.math.top_k(x, 3).values, [("sort", "")]),
        (lambda x: tf.pad(x, [[1, 1], [0, 0]]), [("copy", "")]),
        (lambda x: tf.concat([x, x], 0), [("concat", "")]),
        (lambda x: tf.reshape(x, (8, 6)), []),
        (lambda x: x[1:3, ::2], []),
        (lambda x: tf.transpose(x), []),
        (lambda x: tf.cast(x, tf.float16), [("cast", "")]),
        (lambda x: tf.random.uniform((4, 12)) + x, [("random", "uniform"), ("elementwise", "add")]),
        (lambda x: tf.where(x > 0, x, 0.0), [("elementwise", "compare"), ("elementwise", "where")]),
    ],
)  # fmt: skip
def test_operators_become_their_kinds(function, expected):
    assert work(graph_of(function, (4, 12))) == expected


def test_a_lookup_is_one_gather_of_the_table():
    graph = graph_of(lambda table, i: tf.gather(table, i), (100, 16), ints(7))
    op = only(graph)
    assert op.kind == "gather"
    assert [graph.tensors[name].shape for name in op.inputs] == [(100, 16), (7,)]
    assert graph.tensors[op.outputs[0]].shape == (7, 16)


def test_the_gradient_of_a_lookup_is_one_scatter():
    def gradient(table, i):
        with tf.GradientTape() as tape:
            tape.watch(table)
            loss = tf.reduce_sum(tf.gather(table, i) ** 2)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    kinds = [kind for kind, _ in work(graph_of(gradient, (100, 16), ints(7)))]
    assert kinds.count("scatter") == 1
    assert kinds.count("gather") == 1


# --- products ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "left", "right", "product"),
    [
        ("ij,jk->ik", (4, 8), (8, 3), (1, 4, 8, 3)),
        ("bij,bjk->bik", (5, 4, 8), (5, 8, 3), (5, 4, 8, 3)),
        ("bij,jk->bik", (5, 4, 8), (8, 3), (1, 20, 8, 3)),
        ("abc,cde->abde", (2, 6, 8), (8, 3, 4), (1, 12, 8, 12)),
        ("bqhd,bkhd->bhqk", (2, 6, 3, 8), (2, 5, 3, 8), (6, 6, 8, 5)),
        ("ij,ij->", (4, 8), (4, 8), (1, 1, 32, 1)),
    ],
)
def test_a_product_in_any_notation_has_the_same_multiplications(equation, left, right, product):
    graph = graph_of(lambda a, b: tf.einsum(equation, a, b), left, right)
    (op,) = [op for op in graph.ops if op.kind == "matmul"]
    (groups, m, k), n = graph.tensors[op.inputs[0]].shape, graph.tensors[op.inputs[1]].shape[2]
    assert groups * m * k * n == np.prod(product)
    assert (groups, k) == (product[0], product[2])


def test_a_bias_is_part_of_the_product():
    weights, bias = tf.Variable(tf.ones((8, 3))), tf.Variable(tf.ones(3))
    graph = graph_of(lambda x: tf.nn.bias_add(x @ weights, bias), (4, 8))
    assert len(only(graph).inputs) == 3


def test_a_bias_is_an_op_of_its_own_where_the_product_is_needed_without_it():
    weights, bias = tf.Variable(tf.ones((8, 3))), tf.Variable(tf.ones(3))

    def both(x):
        product = x @ weights
        return product, tf.nn.bias_add(product, bias)

    assert work(graph_of(both, (4, 8))) == [("matmul", ""), ("elementwise", "add")]


def test_scores_of_attention_read_their_keys_the_other_way_round():
    graph = graph_of(lambda q, k: tf.matmul(q, k, transpose_b=True), (2, 6, 8), (2, 5, 8))
    assert only(graph).attributes.get("transposed") is True
    graph = graph_of(tf.matmul, (2, 6, 8), (2, 8, 5))
    assert "transposed" not in only(graph).attributes


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_has_its_kernel_stride_dilation_and_groups(stride, dilation, groups):
    if stride > 1 < dilation:
        pytest.skip("TensorFlow has no such convolution")
    graph = graph_of(
        lambda x, w: tf.nn.conv2d(x, w, stride, "SAME", dilations=dilation),
        (2, 12, 12, 8), (3, 3, 8 // groups, 16),
    )  # fmt: skip
    op = only(graph)
    assert op.kind == "convolution"
    assert op.attributes["kernel"] == (3, 3)
    assert op.attributes["stride"] == (stride, stride)
    assert op.attributes["dilation"] == (dilation, dilation)
    assert op.attributes["groups"] == groups
    assert graph.tensors[op.inputs[0]].shape == (2, 8, 12, 12)
    assert graph.tensors[op.inputs[1]].shape == (16, 8 // groups, 3, 3)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_two_gradients_of_a_convolution_are_told_apart(stride):
    def gradients(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            loss = tf.reduce_sum(tf.nn.conv2d(x, w, stride, "SAME") ** 2)
        return tape.gradient(loss, [x, w])

    graph = graph_of(gradients, (2, 12, 12, 8), (5, 3, 8, 16))
    by_kind = {op.kind: op for op in graph.ops if op.kind.startswith("convolution")}
    assert set(by_kind) == {
        "convolution", "convolution_input_gradient", "convolution_weight_gradient"
    }  # fmt: skip
    for op in by_kind.values():
        assert op.attributes["kernel"] == (5, 3)
        assert op.attributes["stride"] == (stride, stride)
    made = by_kind["convolution_weight_gradient"].outputs[0]
    assert graph.tensors[made].shape == (16, 8, 5, 3)
    made = by_kind["convolution_input_gradient"].outputs[0]
    assert graph.tensors[made].shape == (2, 8, 12, 12)


@pytest.mark.parametrize(
    ("pool", "function"), [(tf.nn.max_pool2d, "max"), (tf.nn.avg_pool2d, "mean")]
)
def test_a_pool_and_its_gradient_have_the_window(pool, function):
    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(pool(x, 3, 2, "SAME") ** 2)
        return tape.gradient(loss, x)

    graph = graph_of(gradients, (2, 12, 12, 8))
    pools = [op for op in graph.ops if op.kind.startswith("pool")]
    assert [op.kind for op in pools] == ["pool", "pool_gradient"]
    for op in pools:
        assert op.attributes["function"] == function
        assert op.attributes["kernel"] == (3, 3)
        assert op.attributes["stride"] == (2, 2)


# --- norms --------------------------------------------------------------------------------------


def batch_norm(x, training):
    scale = tf.ones(x.shape[-1])
    return tf.compat.v1.nn.fused_batch_norm(
        x, scale, scale, scale, scale, is_training=training
    )[0]  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_has_as_many_groups_as_channels(training):
    graph = graph_of(functools.partial(batch_norm, training=training), (2, 6, 6, 8))
    (op,) = [op for op in graph.ops if op.kind == "normalise"]
    assert op.attributes["function"] == "batch"
    assert op.attributes["groups"] == 8
    assert op.attributes["training"] is training


@pytest.mark.parametrize("epsilon", [1e-3, 1e-5])
def test_a_layer_norm_of_keras_is_one_op_in_both_forms_that_keras_writes(epsilon):
    layer = tf.keras.layers.LayerNormalization(epsilon=epsilon)
    layer.build((2, 6, 16))
    graph = graph_of(layer, (2, 6, 16))
    op = only(graph)
    assert (op.kind, op.attributes["function"]) == ("normalise", "layer")
    assert op.attributes["groups"] == 12
    assert len(op.inputs) == 3


@pytest.mark.parametrize("epsilon", [1e-3, 1e-5])
def test_the_gradient_of_a_layer_norm_is_one_op_with_three_results(epsilon):
    layer = tf.keras.layers.LayerNormalization(epsilon=epsilon)
    layer.build((2, 6, 16))

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(loss, [x, *layer.trainable_variables])

    graph = graph_of(gradients, (2, 6, 16))
    norms = [op for op in graph.ops if op.kind.startswith("normalise")]
    assert [op.kind for op in norms] == ["normalise", "normalise_gradient"]
    assert len(norms[1].outputs) == 3
    assert norms[1].attributes["groups"] == 12


def test_halves_that_the_cpu_widens_stay_halves():
    weights = tf.Variable(tf.ones((8, 16), tf.float16))

    def widened(x):
        product = tf.cast(x, tf.float32) @ tf.cast(weights, tf.float32)
        return tf.cast(product, tf.float16)

    graph = graph_of(widened, (4, 8), dtype=tf.float16)
    assert [kind for kind, _ in work(graph)] == ["matmul"]
    assert {t.dtype for t in graph.tensors.values()} == {"float16"}


def test_what_has_no_cost_is_listed_and_counted_not_left_out():
    graph = graph_of(lambda x: tf.linalg.cholesky(x @ tf.transpose(x)), (4, 8))
    assert "unknown" in [kind for kind, _ in work(graph)]
    found = estimate(graph, Settings())
    assert sum(found.unknown.values()) == 1
