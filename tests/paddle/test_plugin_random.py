"""Random numbers: every device has a generator of its own, whose state programs read and set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.usefixtures("plugin")

DRAWS: dict[str, Callable[[], Any]] = {
    "rand": lambda: paddle.rand([8]),
    "randn": lambda: paddle.randn([8]),
    "randn in float16": lambda: paddle.randn([8], dtype="float16"),
    "randint": lambda: paddle.randint(0, 1000, [8]),
    "randperm": lambda: paddle.randperm(50),
    "bernoulli": lambda: paddle.bernoulli(paddle.full([40], 0.5)),
    "multinomial": lambda: paddle.multinomial(paddle.full([90], 0.1), 8),
    "in place": lambda: paddle.zeros([8]).exponential_(),
    "dropout": lambda: paddle.nn.functional.dropout(paddle.ones([40])),
    "initial weights": lambda: paddle.nn.Linear(4, 4).weight,
}


def numbers() -> Any:
    return paddle.rand([8]).numpy()


def generator(device: int) -> Any:
    return paddle.framework.core.default_custom_device_generator(paddle.CustomPlace("ipu", device))


@pytest.fixture(autouse=True)
def on_ipu() -> Iterator[None]:
    paddle.set_device("ipu")
    yield
    paddle.seed(0)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_state_that_was_read_and_set_again_gives_the_same_numbers(draw: str) -> None:
    state = paddle.get_rng_state()
    first = DRAWS[draw]().numpy()
    second = DRAWS[draw]().numpy()
    paddle.set_rng_state(state)
    np.testing.assert_array_equal(first, DRAWS[draw]().numpy())
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("device", ["ipu", "ipu:0", "ipu:3"])
def test_a_state_is_that_of_the_devices_whatever_the_cpu_draws(device: str) -> None:
    paddle.set_device(device)
    state = paddle.get_rng_state(device)
    first = numbers()
    paddle.set_rng_state(state, device)
    paddle.set_device("cpu")
    numbers()
    paddle.set_device(device)
    np.testing.assert_array_equal(first, numbers())


def test_a_seed_gives_the_numbers_that_it_gives_on_the_cpu() -> None:
    drawn = []
    for device in ("cpu", "ipu:0", "ipu:1"):
        paddle.set_device(device)
        paddle.seed(7)
        drawn.append(numbers())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_devices_draw_independently_of_each_other() -> None:
    generator(0).manual_seed(3)
    generator(1).manual_seed(4)
    first = numbers()
    paddle.set_device("ipu:1")
    other = numbers()
    paddle.set_device("ipu:0")
    generator(0).manual_seed(3)
    np.testing.assert_array_equal(first, numbers())
    assert not np.array_equal(first, other)


def test_recomputed_layers_drop_what_they_dropped_before() -> None:
    from paddle.distributed.fleet.utils import recompute

    layer = paddle.nn.Linear(8, 8)

    def forward(x: Any) -> Any:
        return paddle.nn.functional.dropout(layer(x), 0.5)

    gradients = []
    runs: list[Callable[[Any], Any]] = [forward, lambda x: recompute(forward, x)]
    for run in runs:
        x = paddle.ones([4, 8])
        x.stop_gradient = False
        paddle.seed(5)
        run(x).sum().backward()
        gradients.append(x.grad.numpy())
    np.testing.assert_array_equal(*gradients)
