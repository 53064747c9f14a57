"""Small models turned into neutral graphs, for tests of the importer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import poptorch
from poptorch._estimate import captured_program
from poptorch._executor_options import own_options
from poptorch._neutral import neutral_graph
from softipu.graph import Graph, Op


def graph_of(
    model: Any,
    *inputs: torch.Tensor,
    options: poptorch.Options | None = None,
    training: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> Graph:
    own = own_options(options, training)
    return neutral_graph(captured_program(model, inputs, own, training, optimizer), own)


class Trained(nn.Module):
    """A function with weights of its own inputs' making, and the sum of its result as the loss."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.inner(*inputs)
        return result, poptorch.identity_loss(result, "sum")


class Function(nn.Module):
    """A function of one scaled input, so that gradients have somewhere to go."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return self.function(x * self.scale, *rest)


def kinds(graph: Graph) -> list[str]:
    """What the graph does, without looks that cost nothing."""
    return [op.kind for op in graph.ops if not op.kind.endswith("view")]


def functions(graph: Graph) -> list[str]:
    return [str(op.attributes["function"]) for op in graph.ops if "function" in op.attributes]


def only(graph: Graph, kind: str) -> Op:
    (found,) = [op for op in graph.ops if op.kind == kind]
    return found


def multiply_adds(graph: Graph) -> int:
    """What products and convolutions multiply, counted from the graph's shapes alone."""
    total = 0
    for op in graph.ops:
        inputs = [graph.tensors[name] for name in op.inputs]
        output = graph.tensors[op.outputs[0]]
        if op.kind == "matmul":
            total += output.elements * inputs[0].shape[2]
        elif op.kind == "convolution":
            total += output.elements * inputs[1].elements // inputs[1].shape[0]
        elif op.kind == "convolution_input_gradient":
            total += inputs[0].elements * inputs[1].elements // inputs[1].shape[0]
        elif op.kind == "convolution_weight_gradient":
            total += inputs[1].elements * output.elements // output.shape[0]
    return total
