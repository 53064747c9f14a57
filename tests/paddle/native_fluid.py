"""`paddle.fluid` as programs for the IPU API know it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.static import IpuStrategy

IpuStrategy()  # the sign that makes it appear
import paddle.fluid as fluid  # noqa: E402

from softipu.frontends.paddle import fluid_layers  # noqa: E402

L = fluid.layers
RANDOM = np.random.RandomState(0)
X = RANDOM.uniform(0.2, 0.9, (2, 3)).astype("float32")
Y = RANDOM.uniform(0.2, 0.9, (2, 3)).astype("float32")
FOUR = RANDOM.rand(2, 3, 4, 4).astype("float32")
IDS = np.array([[0], [2]])
CHANCES = X / X.sum(1, keepdims=True)
PICKED = -np.log(CHANCES[[0, 1], [0, 2]])[:, None]


def result(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """What a static program of the function gives."""
    paddle.enable_static()
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        inputs = [fluid.data(f"in{i}", a.shape, str(a.dtype)) for i, a in enumerate(arrays)]
        outs = function(*inputs)
        outs = list(outs) if isinstance(outs, list | tuple) else [outs]
        feed = {f"in{i}": a for i, a in enumerate(arrays)}
        found = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=outs)
    return found[0] if len(found) == 1 else found


def pooled(array: np.ndarray, how: Callable[..., Any]) -> np.ndarray:
    return how(array.reshape(2, 3, 2, 2, 2, 2), axis=(3, 5))


CALLS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], Any]] = {
    "elementwise_add": (lambda x, y: L.elementwise_add(x, y, act="relu"), (X, -Y),
                        np.maximum(X - Y, 0)),
    "elementwise_mul by axis": (lambda x, y: L.elementwise_mul(x, y, axis=0), (FOUR, X),
                                FOUR * X[:, :, None, None]),
    "elementwise_div": (L.elementwise_div, (X, Y), X / Y),
    "reduce_sum": (lambda x: L.reduce_sum(x, dim=1, keep_dim=True), (X,), X.sum(1, keepdims=True)),
    "reduce_mean": (L.reduce_mean, (X,), X.mean()),
    "softmax": (L.softmax, (X,), np.exp(X) / np.exp(X).sum(1, keepdims=True)),
    "cross_entropy": (L.cross_entropy, (CHANCES, IDS), PICKED),
    "softmax_with_cross_entropy": (L.softmax_with_cross_entropy, (np.log(CHANCES), IDS), PICKED),
    "pool2d": (lambda x: L.pool2d(x, 2, "max", 2), (FOUR,), pooled(FOUR, np.max)),
    "pool2d average": (lambda x: L.pool2d(x, [2, 2], pool_type="avg", pool_stride=2), (FOUR,),
                       pooled(FOUR, np.mean)),
    "pool2d global": (lambda x: L.pool2d(x, pool_type="avg", global_pooling=True), (FOUR,),
                      FOUR.mean((2, 3), keepdims=True)),
    "dropout": (lambda x: L.dropout(x, 0.25, is_test=True), (X,), X * 0.75),
    "dropout upscaled": (lambda x: L.dropout(x, 0.25, True, None, None, "upscale_in_train"), (X,),
                         X),
    "fill_constant": (lambda: L.fill_constant(shape=[2], dtype="float32", value=3), (), [3.0, 3.0]),
    "matmul": (lambda x, y: L.matmul(x, y, transpose_y=True, alpha=2.0), (X, Y), 2 * X @ Y.T),
    "mul": (lambda x, y: L.mul(x, y), (FOUR[0], RANDOM.rand(16, 2).astype("float32") * 0 + 1),
            FOUR[0].reshape(3, 16).sum(1)[:, None] * [1, 1]),
    "argmax": (L.argmax, (X,), X.argmax(0)),
    "argsort": (lambda x: L.argsort(x)[0], (X,), np.sort(X)),
    "argsort places": (lambda x: L.argsort(x)[1], (X,), np.argsort(X)),
    "topk": (lambda x: L.topk(x, 1)[0], (X,), X.max(1, keepdims=True)),
    "split": (lambda x: L.split(x, 3, dim=1)[1], (X,), X[:, 1:2]),
    "squeeze": (lambda x: L.squeeze(x, axes=[0]), (X[None],), X),
    "unsqueeze": (lambda x: L.unsqueeze(x, axes=[1]), (X,), X[:, None]),
    "flatten": (lambda x: L.flatten(x, axis=2), (FOUR,), FOUR.reshape(6, 16)),
    "expand": (lambda x: L.expand(x, [2, 1]), (X,), np.tile(X, [2, 1])),
    "gather": (lambda x, i: L.gather(x, i), (X, np.array([1])), X[1:]),
    "leaky_relu": (L.leaky_relu, (-X,), -0.02 * X),
    "pow": (lambda x: L.pow(x, factor=2.0), (X,), X**2),
    "range": (lambda: L.range(0, 3, 1, "int32"), (), [0, 1, 2]),
    "one_hot": (lambda i: fluid.input.one_hot(i, depth=3), (IDS[:, 0],), np.eye(3)[IDS[:, 0]]),
    "sum": (lambda x, y: L.sum([x, y]), (X, Y), X + Y),
    "zeros": (lambda: L.zeros([2], "float32"), (), [0.0, 0.0]),
    "assign": (lambda: L.assign(np.array([1, 2], "int32")), (), [1, 2]),
    "relu": (L.relu, (X - Y,), np.maximum(X - Y, 0)),
    "where": (L.where, (X > 0.5,), np.argwhere(X > 0.5)),
    "concat": (lambda x, y: L.concat(input=[x, y], axis=0), (X, Y), np.concatenate([X, Y])),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_function_of_layers_means_what_it_meant(name: str) -> None:
    function, arrays, expected = CALLS[name]
    found = result(function, *arrays)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_dropout_with_a_seed_drops_the_same_each_time() -> None:
    ones = np.ones((50, 50), "float32")
    first, again = (result(lambda x: L.dropout(x, 0.5, seed=3), ones) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert 0.4 < first.mean() < 0.6


def test_every_function_is_of_layers() -> None:
    for name, function in fluid_layers.all_of_them().items():
        assert getattr(L, name) is not None
        assert callable(function)


def test_a_name_that_is_nowhere_is_told() -> None:
    with pytest.raises(AttributeError, match=r"paddle\.fluid\.layers\.warpctc is gone"):
        L.warpctc  # noqa: B018


def test_what_is_no_layer_is_as_in_paddle_today() -> None:
    assert fluid.Program is paddle.static.Program
    assert fluid.core.LoDTensor is paddle.base.core.DenseTensor
    assert fluid.core.VarDesc is paddle.base.core.VarDesc
    assert fluid.ParamAttr is paddle.ParamAttr


def test_a_program_in_fluid_trains_on_an_ipu() -> None:
    paddle.enable_static()
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.core.Scope()
    paddle.seed(1)
    with fluid.scope_guard(scope), fluid.program_guard(main, startup):
        image = fluid.layers.data("image", [4, 1, 8, 8], append_batch_size=False)
        label = fluid.layers.data("label", [4, 1], append_batch_size=False, dtype="int64")
        hidden = fluid.nets.simple_img_conv_pool(image, 4, 3, 2, 2, act="relu")
        hidden = fluid.layers.batch_norm(hidden)
        chances = fluid.layers.fc(
            hidden, 3, act="softmax",
            param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal(loc=0.0, scale=0.1)),
        )  # fmt: skip
        loss = fluid.layers.mean(fluid.layers.cross_entropy(input=chances, label=label))
        fluid.optimizer.AdamOptimizer(
            learning_rate=0.01, regularization=fluid.regularizer.L2Decay(1e-4)
        ).minimize(loss)
        executor = fluid.Executor(paddle.IPUPlace())
        executor.run(startup)
        strategy = IpuStrategy()
        strategy.set_pipelining_config(batches_per_step=2)
        compiled = paddle.static.IpuCompiledProgram(main, scope, strategy)
        program = compiled.compile(["image", "label"], [loss.name])
        feed = {"image": RANDOM.rand(8, 1, 8, 8).astype("float32"),
                "label": RANDOM.randint(0, 3, (8, 1))}  # fmt: skip
        losses = [executor.run(program, feed=feed, fetch_list=[loss])[0] for _ in range(20)]
    assert losses[0].shape == (2,)
    assert losses[-1].mean() < 0.5 * losses[0].mean()


def run(path: Path, script: str) -> str:
    (path / "main.py").write_text(script)
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "main.py"],
        capture_output=True, text=True, check=False, cwd=path, env=os.environ,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    return child.stdout.strip()


def test_plain_programs_have_no_such_module(tmp_path: Path) -> None:
    script = """
import paddle
try:
    import paddle.fluid
except ModuleNotFoundError:
    print("none", hasattr(paddle, "fluid"))
"""
    assert run(tmp_path, script) == "none False"


def test_a_module_of_the_program_may_be_the_one_that_names_the_api(tmp_path: Path) -> None:
    text = "import paddle.fluid as fluid\ndef placed(paddle):\n    paddle.static.ipu_shard_guard(0)"
    (tmp_path / "model.py").write_text(text)
    assert run(tmp_path, "import paddle, model\nprint(model.fluid.__name__)") == "paddle.fluid"
