"""Cases for kernels that only gradients lead to: second orders, complex ones, SelectedRows.

A case of op_cases.py is differentiated by its inputs alone. Where an op is linear in pieces (relu, pooling),
its second derivative is nought, and the kernel runs only if the first gradient's seed is differentiated too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from op_cases import Case, positive, real, truth, whole


def _by_inputs_and_seed(call: Callable[..., Any], *inputs: Any) -> list[Any]:
    """The result, its gradients, and their gradients by the inputs and by the seed."""
    import paddle

    leaves = [x.detach() for x in inputs]
    for leaf in leaves:
        leaf.stop_gradient = False
    output = call(*leaves)
    seed = paddle.cos(output.detach())
    seed.stop_gradient = False
    first = paddle.grad(output, leaves, seed, create_graph=True)
    seeds = [paddle.sin(g.detach()) for g in first]
    second = paddle.grad(first, [*leaves, seed], seeds, allow_unused=True)
    return [output, *first, *second]


def _second_order() -> Iterator[Case]:
    import paddle
    import paddle.nn.functional as F

    image, above = real(2, 3, 6, 6), real(3, 4, low=0.3, high=2)
    matrices = [real(3, 3), real(3, 3, low=0.5)]
    calls: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "abs": (paddle.abs, [real(3, 4)]),
        "relu": (F.relu, [real(3, 4)]),
        "leaky_relu": (F.leaky_relu, [real(3, 4)]),
        "elu": (F.elu, [real(3, 4)]),
        "celu": (F.celu, [real(3, 4)]),
        "softplus": (F.softplus, [real(3, 4)]),
        "tanh": (paddle.tanh, [real(3, 4)]),
        "log": (paddle.log, [above]),
        "sqrt": (paddle.sqrt, [above]),
        "rsqrt": (paddle.rsqrt, [above]),
        "square": (paddle.square, [above]),
        "matmul": (paddle.matmul, matrices),
        "multiply": (paddle.multiply, matrices),
        "divide": (paddle.divide, matrices),
        "add": (paddle.add, matrices),
        "subtract": (paddle.subtract, matrices),
        "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), [image]),
        "conv2d": (F.conv2d, [image, real(4, 3, 3, 3)]),
        "batch_norm": (lambda x: F.batch_norm(x, paddle.zeros([3]), paddle.ones([3]), paddle.ones([3]),
                                              paddle.zeros([3]), training=True), [image]),
    }  # fmt: skip
    for name, (call, inputs) in calls.items():
        yield Case(
            f"second order {name}",
            lambda *x, c=call: _by_inputs_and_seed(c, *x),
            inputs,
            False,
            1e-4,
        )


def _of_complex() -> Iterator[Case]:
    import paddle

    pair = [real(3, 3), real(3, 3, low=0.2)]
    yield Case("eig values abs", lambda x: paddle.linalg.eig(x)[0].abs(), [positive(3)])
    yield Case("eig vectors abs", lambda x: paddle.linalg.eig(x)[1].abs(), [pair[0]],
               tolerance=1e-4)  # fmt: skip
    yield Case("fft of complex abs", lambda x, y: paddle.fft.fft(paddle.complex(x, y)).abs(), pair)
    for name in ("matmul", "kron", "inner"):
        yield Case(f"{name} real and complex", lambda x, y, n=name: getattr(paddle, n)(
            x, paddle.complex(y, y).detach()).abs(), pair)  # fmt: skip


def _rows(times: int = 1) -> Any:
    """A gradient as SelectedRows, with a row twice in it."""
    import paddle

    layer = paddle.nn.Embedding(10, 4, sparse=True)
    layer.weight.set_value(real(10, 4))
    for _ in range(times):
        (layer(paddle.to_tensor([1, 2, 2])) ** 2).sum().backward()
    return layer.weight.grad


def _clipped_embedding(clip: Any) -> Any:
    import paddle

    layer = paddle.nn.Embedding(10, 4, sparse=True)
    layer.weight.set_value(real(10, 4))
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters(), grad_clip=clip)
    (layer(paddle.to_tensor([1, 2, 2])) ** 2).sum().backward()
    optimizer.step()
    return layer.weight


def _followed_leader() -> list[Any]:
    """FTRL with a sparse gradient, which no class of optimisers has."""
    import paddle

    weight, squares, linear = (paddle.to_tensor(real(10, 4, low=n)) for n in (-1.0, 0.2, 0.1))
    rate = paddle.to_tensor([0.1])
    paddle._C_ops.ftrl(weight, squares, linear, _rows(), rate, 0.1, 0.1, -0.5)
    return [weight, squares, linear]


def _sum_of_rows() -> Any:
    import paddle

    rows = [_rows(), _rows()]
    with paddle.no_grad():
        return paddle.add_n(rows)


def _selected_rows() -> Iterator[Case]:
    import paddle

    ops = paddle._C_ops
    calls: dict[str, Callable[[], Any]] = {
        "isfinite": lambda: paddle.isfinite(_rows()),
        "isinf": lambda: paddle.isinf(_rows()),
        "isnan": lambda: paddle.isnan(_rows()),
        "square": lambda: paddle.square(_rows()),
        "sqrt": lambda: paddle.sqrt(paddle.square(_rows())),
        "scale": lambda: paddle.scale(_rows(), 2.0),
        "multiply": lambda: paddle.multiply(_rows(), paddle.to_tensor([2.0])),
        "shape": lambda: ops.shape(_rows()),
        "shape64": lambda: ops.shape64(_rows()),
        "merge": lambda: ops.merge_selected_rows(_rows()),
        "clip_by_norm": lambda: ops.clip_by_norm(ops.merge_selected_rows(_rows()), 0.1),
        "add_n": _sum_of_rows,
        "ftrl": _followed_leader,
        "gradient of two passes": lambda: _rows(2),
        "clip norm": lambda: _clipped_embedding(paddle.nn.ClipGradByNorm(0.1)),
        "clip global norm": lambda: _clipped_embedding(paddle.nn.ClipGradByGlobalNorm(0.1)),
    }
    for name, call in calls.items():
        yield Case(f"rows {name}", call, [], False)


def _gradient_of_values(values: Any) -> Any:
    import paddle

    leaf = values.detach()
    leaf.stop_gradient = False
    made = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], leaf, [2, 2], stop_gradient=False)
    (made.to_dense() ** 2).sum().backward()
    return leaf.grad


def _gradient_under_mask(x: Any) -> Any:
    import paddle

    leaf = x.detach()
    leaf.stop_gradient = False
    mask = paddle.sparse.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 1.0], [2, 2])
    kept = paddle.sparse.mask_as(leaf, mask)
    kept.backward(kept.detach())
    return leaf.grad


def _assigned(x: Any, rows: Any) -> Any:
    import paddle

    changed = x * 1
    changed[paddle.to_tensor([0, 2])] = rows
    return changed * changed


def _others() -> Iterator[Case]:
    import paddle

    ops = paddle._C_ops
    dense = (real(3, 4, low=0.1, high=0.9) * truth(3, 4)).astype("float32")
    tolerance = np.array(0.1, "float32")
    yield Case("matrix_rank tensor", lambda x, t: paddle.linalg.matrix_rank(x, tol=t.detach()),
               [real(3, 3), tolerance], False)  # fmt: skip
    yield Case("coo values gradient", _gradient_of_values, [real(2)], False)
    yield Case("mask_as csr gradient", _gradient_under_mask, [real(2, 2)], False)
    yield Case("assign rows", _assigned, [real(3, 4), real(2, 4)])
    yield Case("coo full_like", lambda x: ops.sparse_full_like(
        x.to_sparse_coo(2), 2.0, paddle.float32).to_dense(), [dense], False)  # fmt: skip
    yield Case("csr full_like", lambda x: ops.sparse_full_like(
        x.to_sparse_csr(), 2.0, paddle.float32).to_dense(), [dense], False)  # fmt: skip
    yield Case("coo indices op", lambda x: ops.sparse_indices(x.to_sparse_coo(2)), [dense], False)
    yield Case("squared_l2_norm", ops.squared_l2_norm, [real(3, 4)])
    yield Case("fake_quantize moving average", lambda x: ops.fake_quantize_dequantize_moving_average_abs_max(
        x, *(paddle.to_tensor([1.0]) for _ in range(3)), 0.9, 8, False, 1)[0], [real(3, 4)])  # fmt: skip
    yield Case("trans_layout", lambda x: ops.trans_layout(x, [1, 0]), [real(3, 4)])
    # Sorted, as the order is drawn anew in each call.
    yield Case("shuffle_batch gradient", lambda x: paddle.sort(ops.shuffle_batch(
        x, paddle.to_tensor([3]), 3)[0], axis=0), [real(3, 4)])  # fmt: skip
    yield Case("weight_quantize", lambda x: paddle.nn.quant.weight_quantize(
        x.astype("float16"), arch=80), [real(64, 64)], False)  # fmt: skip
    yield Case("interp_antialias", lambda x: ops.interp_antialias(
        x, None, None, None, "NCHW", -1, 4, 4, [], "bilinear", False, 1), [real(2, 3, 8, 8)])  # fmt: skip
    yield Case("full_batch_size_like on the device", lambda x: ops.full_batch_size_like(
        x, [1, 2], paddle.float32, 2.0, 0, 0, x.place), [whole(3, 4)], False)  # fmt: skip


def cases() -> Iterator[Case]:
    for kind in (_second_order, _of_complex, _selected_rows, _others):
        yield from kind()
