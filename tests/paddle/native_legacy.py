"""Operations and arguments that the wheel dropped from static graphs work again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.static import IpuStrategy

from softipu.frontends.paddle import legacy_arguments, legacy_ops

F = paddle.nn.functional
IpuStrategy()  # the sign that makes them appear

RANDOM = np.random.RandomState(0)
X = RANDOM.uniform(0.2, 0.9, (2, 3)).astype("float32")
Y = RANDOM.uniform(0.2, 0.9, (2, 3)).astype("float32")
ABOVE = X + 1
MASK, OTHER = X > 0.5, Y > 0.5
CUBE = RANDOM.rand(2, 3, 4).astype("float32")


def both(function: Callable[..., Any], *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result in a dynamic graph, and in a static one."""
    paddle.disable_static()
    dynamic = function(*(paddle.to_tensor(array) for array in arrays)).numpy()
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        names = [f"in{index}" for index in range(len(arrays))]
        inputs = [
            paddle.static.data(name, array.shape, str(array.dtype))
            for name, array in zip(names, arrays, strict=True)
        ]
        out = function(*inputs)
        feed = dict(zip(names, arrays, strict=True))
        executor = paddle.static.Executor(paddle.CPUPlace())
        static = executor.run(main, feed=feed, fetch_list=[out])[0]
    paddle.disable_static()
    return dynamic, static


CASES: dict[str, list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]] = {
    **{
        name: [(getattr(paddle, name), (ABOVE if name == "acosh" else X,))]
        for name in legacy_ops._UNARY.split()
        if name != "sigmoid"
    },
    "sigmoid": [(F.sigmoid, (X,))],
    **{
        name: [(getattr(paddle, name), (X, Y))]
        for name in ("multiply", "maximum", "minimum", "greater_than", "dot", "isclose")
    },
    **{
        name: [(getattr(paddle, name), (MASK, OTHER))]
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    "logical_not": [(paddle.logical_not, (MASK,))],
    "isfinite": [(paddle.isfinite, (X,))],
    "isinf": [(paddle.isinf, (np.array([1, np.inf], "float32"),))],
    "isnan": [(paddle.isnan, (np.array([1, np.nan], "float32"),))],
    "bmm": [(paddle.bmm, (CUBE, CUBE.transpose(0, 2, 1)))],
    "matmul": [
        (lambda x, y: paddle.matmul(x, y, transpose_y=True), (X, Y)),
        (lambda x, y: paddle.matmul(x, y, True, False), (X, Y)),
        (lambda x, y: x.matmul(y.T), (X, Y)),
    ],
    "sum": [
        (paddle.sum, (CUBE,)),
        (lambda x: paddle.sum(x, axis=[0, -1], keepdim=True), (CUBE,)),
        (lambda x: paddle.sum(x, 1, "float64"), (CUBE,)),
        (paddle.sum, (MASK,)),
    ],
    "all": [(paddle.all, (MASK,)), (lambda x: paddle.all(x, axis=0, keepdim=True), (MASK,))],
    "any": [(paddle.any, (MASK,)), (lambda x: paddle.any(x, axis=-1), (MASK,))],
    "amax": [(lambda x: paddle.amax(x, axis=1), (CUBE,)), (paddle.amax, (CUBE,))],
    "amin": [(lambda x: paddle.amin(x, axis=[1, 2]), (CUBE,))],
    "logsumexp": [(paddle.logsumexp, (X,)), (lambda x: paddle.logsumexp(x, axis=0), (X,))],
    "argmax": [(paddle.argmax, (X,)), (lambda x: paddle.argmax(x, 1, True, "int32"), (X,))],
    "argmin": [(lambda x: paddle.argmin(x, axis=0), (X,))],
    "round": [(lambda x: paddle.round(x, 1), (X,))],
    "tril": [(paddle.tril, (X,)), (lambda x: paddle.tril(x, -1), (X,))],
    "triu": [(lambda x: paddle.triu(x, diagonal=1), (X,))],
    "diagonal": [(lambda x: paddle.diagonal(x, 0, 1, 2), (CUBE,))],
    "roll": [(lambda x: paddle.roll(x, 1), (X,)), (lambda x: paddle.roll(x, [1], [0]), (X,))],
    "expand_as": [(paddle.expand_as, (X[:1], Y))],
    "index_put": [
        (lambda x, i, v: paddle.index_put(x, [i], v), (X, np.array([1]), np.ones(3, "float32")))
    ],
    "gelu": [(F.gelu, (X,)), (lambda x: F.gelu(x, approximate=True), (X,))],
    "softplus": [(lambda x: F.softplus(x, 2, 10), (X,))],
    "grid_sample": [
        (lambda x, g: F.grid_sample(x, g, mode="nearest"),
         (RANDOM.rand(1, 2, 4, 4).astype("float32"),
          RANDOM.rand(1, 3, 3, 2).astype("float32"))),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", legacy_ops.FORMS)
def test_a_restored_operation_computes_what_the_dynamic_one_does(name: str) -> None:
    for function, arrays in CASES[name]:
        dynamic, static = both(function, *arrays)
        assert static.shape == dynamic.shape
        assert static.dtype == dynamic.dtype
        np.testing.assert_allclose(static, dynamic, rtol=1e-6)


def static_result(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        inputs = [paddle.static.data(f"in{i}", a.shape, str(a.dtype)) for i, a in enumerate(arrays)]
        out = function(*inputs)
        feed = {f"in{i}": a for i, a in enumerate(arrays)}
        return paddle.static.Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=[out])[0]


IDS = np.array([0, 2, 1])
FOUR = RANDOM.rand(2, 3, 4, 5).astype("float32")
OLD_CALLS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], Any]] = {
    "reshape": (lambda x: paddle.reshape(x, [3, 2], inplace=True), (X,), X.reshape(3, 2)),
    "squeeze": (lambda x: paddle.squeeze(x, axes=[0]), (X[None],), X),
    "unsqueeze": (lambda x: paddle.unsqueeze(x, axes=1), (X,), X[:, None]),
    "pow": (lambda x: paddle.pow(x, factor=2.0), (X,), X**2),
    "mean": (lambda x: paddle.mean(x, dim=1, keep_dim=True), (X,), X.mean(1, keepdims=True)),
    "sum": (lambda x: paddle.sum(x, dim=0, keep_dim=False), (X,), X.sum(0)),
    "transpose": (lambda x: paddle.transpose(x, perm=[1, 0]), (X,), X.T),
    "one_hot": (lambda i: F.one_hot(i, depth=3, allow_out_of_range=False), (IDS,), np.eye(3)[IDS]),
    "base.input.one_hot": (lambda i: paddle.base.input.one_hot(i, depth=3), (IDS,), np.eye(3)[IDS]),
    "add": (lambda x, y: paddle.add(x, y, axis=1), (FOUR, FOUR[0, :, :, 0]),
            FOUR + FOUR[0, :, :, :1]),
    "divide": (lambda x, y: paddle.divide(x, y, axis=0), (FOUR, ABOVE[:, 0]),
               FOUR / ABOVE[:, 0][:, None, None, None]),
    "cumsum": (lambda x: paddle.cumsum(x, exclusive=True, reverse=False), (X,),
               np.cumsum(X, -1) - X),
    "expand": (lambda x: paddle.expand(x, expand_times=[2, 1]), (X,), np.tile(X, [2, 1])),
    "dropout": (lambda x: F.dropout(x, 0.5, training=False, mode="downgrade_in_infer"), (X,),
                X * 0.5),
    "normalize": (lambda x: F.normalize(x), (X,), X / np.linalg.norm(X, axis=1, keepdims=True)),
    "base.layers.less_than": (lambda x, y: paddle.base.layers.less_than(x, y), (X, Y), X < Y),
    "identity_loss": (lambda x: paddle.incubate.identity_loss(x, "mean"), (X,), X.mean()),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD_CALLS)
def test_an_old_call_means_what_it_meant(name: str) -> None:
    function, arrays, expected = OLD_CALLS[name]
    np.testing.assert_allclose(static_result(function, *arrays), expected, rtol=1e-5)


def test_every_changed_function_exists_in_the_wheel() -> None:
    tables = (
        legacy_arguments.RENAMED, legacy_arguments.DROPPED, legacy_arguments.BROADCAST,
    )  # fmt: skip
    for path in {path for table in tables for path in table}:
        assert callable(legacy_arguments._find(paddle, path))


def test_unknown_arguments_are_still_errors() -> None:
    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program()):
        x = paddle.static.data("x", [2, 3], "float32")
        with pytest.raises(TypeError, match="wrong"):
            paddle.sum(x, wrong=1)
        with pytest.raises(TypeError, match="wrong"):
            paddle.reshape(x, [6], wrong=1)
