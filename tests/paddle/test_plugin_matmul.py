"""The device's own matrix products against the CPU's, with gradients."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.usefixtures("plugin")

#: Batches of the two sides: none, the same, one for all, and what repeats in parts.
BATCHES = [
    ((), ()), ((5,), (5,)), ((5,), ()), ((), (5,)), ((2, 3), (2, 3)), ((2, 3), ()), ((5,), (1,)),
    ((1,), (5,)), ((2, 1), (2, 3)),
]  # fmt: skip
SIZES = [(7, 4, 3), (1, 1, 1), (65, 33, 17)]


def native_products(plugin: Path) -> int:
    counts = ctypes.CDLL(str(plugin / "softipu/libsoftipu-paddle-kernels.so")).SoftipuKernelCounts
    counts.restype = ctypes.c_char_p
    rows = (line.split() for line in counts().decode().splitlines())
    return next(int(row[1]) for row in rows if row[0] == "matmul")


def product(device: str, left: np.ndarray, right: np.ndarray, *turned: bool) -> list[np.ndarray]:
    """The product of both, and the gradients of its squares."""
    paddle.set_device(device)
    x, y = (paddle.to_tensor(side, stop_gradient=False) for side in (left, right))
    out = paddle.matmul(x, y, *turned)
    (out * out).sum().backward()
    return [out.numpy(), x.grad.numpy(), y.grad.numpy()]


@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_products_and_their_gradients_are_those_of_the_cpu(
    batches: tuple[tuple[int, ...], tuple[int, ...]], plugin: Path
) -> None:
    random = np.random.default_rng(0)
    before = native_products(plugin)
    for (rows, columns, depth), *turned in itertools.product(SIZES, (False, True), (False, True)):
        left = (depth, rows) if turned[0] else (rows, depth)
        right = (columns, depth) if turned[1] else (depth, columns)
        sides = [
            random.standard_normal((*batch, *shape)).astype("float32")
            for batch, shape in zip(batches, (left, right), strict=True)
        ]
        on_cpu, on_ipu = (product(device, *sides, *turned) for device in ("cpu", "ipu"))
        for expected, found in zip(on_cpu, on_ipu, strict=True):
            assert found.shape == expected.shape
            assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()
    in_parts = batches == ((2, 1), (2, 3))  # is left to the CPU's kernel
    assert native_products(plugin) - before == (0 if in_parts else 4 * len(SIZES))


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((0, 4), (4, 2))])
def test_vectors_and_nothing_are_left_to_the_cpus_kernel(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], plugin: Path
) -> None:
    before = native_products(plugin)
    sides = [np.ones(shape, "float32") for shape in shapes]
    results = []
    for device in ("cpu", "ipu"):
        paddle.set_device(device)
        results.append(paddle.matmul(*(paddle.to_tensor(side) for side in sides)).numpy())
    np.testing.assert_array_equal(*results)
    assert native_products(plugin) == before


def test_numbers_of_another_type_are_not_read_as_single_precision(plugin: Path) -> None:
    paddle.set_device("ipu")
    before = native_products(plugin)
    double = paddle.full([2, 2], 0.5, "float64")
    assert paddle.matmul(double, double).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    half = double.astype("float16")
    assert str(paddle.matmul(half, half).dtype) == "paddle.float16"
    with pytest.raises(ValueError, match="float"):
        paddle.matmul(double.astype("float32"), double)
    assert native_products(plugin) - before == 1  # half precision, by way of single
