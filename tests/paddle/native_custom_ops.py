"""Custom operations as registered Python functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
from static_programs import built

from softipu.errors import PaddleCustomOpMissing
from softipu.frontends.paddle import custom
from softipu.frontends.paddle.custom import register_custom_op
from softipu.frontends.paddle.program import program_of

paddle.enable_static()

X = np.array([[-2.0, -1.0, 3.0]], "float32")


@register_custom_op("custom_leaky")
def leaky(x: Any, alpha: float = 0.01) -> Any:
    return paddle.where(x > 0, x, alpha * x)


@register_custom_op("custom_pair")
def pair(x: Any, y: Any) -> Any:
    return x + y, x * y


@register_custom_op("custom_column")
def column(x: Any) -> Any:
    return x[:, 2]


@register_custom_op("custom_own_gradient")
def doubled(x: Any) -> Any:
    return 2 * x


@doubled.backward
def doubled_gradient(inputs: Any, gradients: Any) -> Any:
    return 100 * gradients[0]


def test_a_registered_function_runs_in_an_ipu_program() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 3], "float32")
        return ["x"], [leaky(x, alpha=0.5) + 1]

    program = built(build)
    out = program.run(program.compile(is_training=False), {"x": X})[0]
    assert out.tolist() == [[0.0, 0.5, 4.0]]


def test_several_outputs() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 3], "float32")
        return ["x"], list(pair(x, x))

    program = built(build)
    total, product = program.run(program.compile(is_training=False), {"x": X})
    np.testing.assert_array_equal(total, 2 * X)
    np.testing.assert_array_equal(product, X * X)


def test_an_open_batch_stays_open() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [-1, 3], "float32")
        total, product = pair(x, x)
        assert (total.shape, product.shape) == ((-1, 3), (-1, 3))
        return ["x"], [paddle.reshape(total, [-1, 1]), column(x)]

    program = built(build)
    x = np.tile(X, (4, 1))
    rows, last = program.run(program.compile(is_training=False, micro_batch_size=4), {"x": x})
    np.testing.assert_array_equal(rows, 2 * x.reshape(-1, 1))
    np.testing.assert_array_equal(last, x[:, 2])
    assert program.fetches[1].shape == (-1,)


def step(operation: Any) -> np.ndarray:
    """How far one step of SGD moves a weight of ones, through the operation."""

    def build() -> Any:
        x = paddle.static.data("x", [1, 3], "float32")
        weight = paddle.create_parameter(
            [1, 3], "float32", default_initializer=paddle.nn.initializer.Constant(1.0)
        )
        loss = paddle.sum(operation(x * weight))
        paddle.optimizer.SGD(1.0).minimize(loss)
        return ["x"], [loss]

    program = built(build)
    program.run(program.compile(), {"x": X})
    (value,) = program.weights.values()
    return 1 - value


def test_the_gradient_follows_from_the_function() -> None:
    np.testing.assert_allclose(step(lambda v: leaky(v, alpha=0.5)), [[-1.0, -0.5, 3.0]], rtol=1e-6)


def test_an_own_gradient_is_used() -> None:
    np.testing.assert_allclose(step(doubled), 100 * X, rtol=1e-5)


def test_a_registered_function_takes_the_place_of_an_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for an operation of a C++ extension that has the registered name."""

    def build() -> Any:
        x = paddle.static.data("x", [1, 3], "float32")
        hidden = paddle.nn.functional.leaky_relu(x, 0.25)
        loss = paddle.mean(paddle.static.nn.fc(hidden, 1))
        paddle.optimizer.SGD(0.1).minimize(loss)
        return ["x"], [hidden]

    seen = []

    def function(x: Any, alpha: float) -> Any:
        seen.append(alpha)
        return paddle.zeros_like(x) + x * 0

    replaced = custom.CustomOp("leaky_relu", function)
    monkeypatch.setitem(custom._registered, "leaky_relu", replaced)
    program = built(build)
    out = program.run(program.compile(), {"x": X})[0]
    assert out.tolist() == [[0, 0, 0]]
    assert seen[0] == 0.25


def test_a_registered_function_stays_on_the_ipu_of_the_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 3], "float32")
        with paddle.static.ipu_shard_guard(index=1, stage=1):
            return ["x"], [paddle.nn.functional.leaky_relu(x, 0.25)]

    twice = custom.CustomOp("leaky_relu", lambda x, alpha: 2 * x)
    monkeypatch.setitem(custom._registered, "leaky_relu", twice)
    program = built(build)
    compiled = program.compile(is_training=False, num_ipus=2, enable_manual_shard=True)
    (placed,) = (op for op in program_of(compiled)["operations"] if op["type"] == "py_func")
    assert (placed["ipu"], placed["stage"]) == (1, 1)
    assert program.run(compiled, {"x": X})[0].tolist() == (2 * X).tolist()


def test_an_operation_that_cannot_run_is_named() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [1, 3], "float32")
        return ["x"], [paddle.nn.functional.relu(x)]

    program = built(build)
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(is_training=False)
    strategy.add_custom_op("relu", "MyRelu")
    whole = paddle.static.IpuCompiledProgram(program.main, program.scope, strategy)
    whole.compile(["x"], [program.fetches[0].name])  # has a CPU kernel: runs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(custom, "_runs_on_cpu", lambda name: False)
        with pytest.raises(PaddleCustomOpMissing, match="(?s)SIPU-4005.*relu.*register_custom_op"):
            whole.compile(["x"], [program.fetches[0].name])
