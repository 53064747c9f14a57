"""Small static programs that the tests of the native IPU API share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

Build = Callable[[], tuple[list[str], list[Any]]]
SEED = 7


@dataclass
class Program:
    """A program built in a scope of its own, with its start-up done."""

    main: Any
    scope: Any
    feeds: list[str]
    fetches: list[Any]
    executor: Any

    def compile(self, **options: Any) -> Any:
        strategy = paddle.static.IpuStrategy()
        graph = {
            name: options.pop(name)
            for name in ("num_ipus", "is_training", "micro_batch_size", "enable_manual_shard")
            if name in options
        }
        strategy.set_graph_config(**graph)
        strategy.set_options(options)
        self.strategy = strategy
        return paddle.static.IpuCompiledProgram(self.main, self.scope, strategy).compile(
            self.feeds, [var.name for var in self.fetches]
        )

    def run(self, program: Any, feed: dict[str, Any], **options: Any) -> list[np.ndarray]:
        with paddle.static.scope_guard(self.scope):
            fetches = [var.name for var in self.fetches]
            return self.executor.run(program, feed=feed, fetch_list=fetches, **options)

    def value(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    @property
    def weights(self) -> dict[str, np.ndarray]:
        return {p.name: self.value(p.name).copy() for p in self.main.all_parameters()}


def built(build: Build) -> Program:
    """The same program with the same weights, every time."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    scope = paddle.static.Scope()
    paddle.seed(SEED)
    with (
        paddle.static.scope_guard(scope),
        paddle.utils.unique_name.guard(),
        paddle.static.program_guard(main, startup),
    ):
        feeds, fetches = build()
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
    return Program(main, scope, feeds, fetches, executor)


def linear(batch: int, optimizer: Callable[[], Any] | None = None) -> Build:
    """A small network with a loss that is a mean over the batch."""

    def build() -> tuple[list[str], list[Any]]:
        x = paddle.static.data("x", [batch, 4], "float32")
        y = paddle.static.data("y", [batch, 1], "float32")
        hidden = paddle.nn.functional.relu(paddle.static.nn.fc(x, 8))
        loss = paddle.mean(paddle.square(paddle.static.nn.fc(hidden, 1) - y))
        if optimizer is not None:
            optimizer().minimize(loss)
        return ["x", "y"], [loss]

    return build


def data(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.RandomState(seed)
    return {
        "x": random.rand(rows, 4).astype("float32"),
        "y": random.rand(rows, 1).astype("float32"),
    }
