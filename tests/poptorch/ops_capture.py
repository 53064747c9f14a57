"""Captures a function as the executor does, for tests of single operators: fakes, then an FX graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from poptorch._context import Capture, capturing


@dataclass
class Captured:
    """The recorded graph, callable on real tensors, and what the operators told the capture."""

    graph: GraphModule
    state: Capture

    def __call__(self, *tensors: torch.Tensor) -> Any:
        return self.graph(*tensors)

    def mapped(self, *tensors: torch.Tensor) -> Any:
        """One call per row of the first dimension, as the executor maps micro-batches."""
        return torch.vmap(self.graph, randomness="different")(*tensors)

    @property
    def targets(self) -> list[str]:
        return [str(node.target) for node in self.graph.graph.nodes if node.op == "call_function"]

    def notes(self, key: str) -> list[Any]:
        return [value for _, name, value in self.state.notes if name == key]


def captured(
    function: Callable[..., Any], *examples: torch.Tensor, training: bool = False
) -> Captured:
    """Run `function` once, on fake tensors like `examples`."""
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    inputs = [fakes.from_tensor(example.clone()) for example in examples]
    state = Capture(training, None, inputs=inputs)

    def step(*tensors: torch.Tensor) -> Any:
        with capturing(state):
            return function(*tensors)

    return Captured(make_fx(step)(*inputs), state)


def captured_gradients(function: Callable[..., Any], *examples: torch.Tensor) -> Captured:
    """The graph of the gradients of `function`'s sum with respect to the floating-point inputs."""

    def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = [
            tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
            for tensor in tensors
        ]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return list(torch.autograd.grad(function(*leaves).sum(), wanted))

    return captured(step, *examples, training=True)
