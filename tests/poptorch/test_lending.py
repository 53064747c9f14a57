"""What modules look like while they are captured, and afterwards."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from executor_support import quiet, same
from torch import nn

import poptorch


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> Any:
        y = x * self.scale
        return y, poptorch.identity_loss(y.sum(), reduction="none")


def test_a_method_bound_to_the_users_module_trains_its_weights() -> None:
    """PopTorch captures a shallow copy; programs that replace `forward` bind it to the original."""

    def forward(self: Scaled, x: torch.Tensor) -> Any:
        y = x * self.scale * 2
        return y, poptorch.identity_loss(y.sum(), reduction="none")

    model = Scaled()
    model.forward = types.MethodType(forward, model)  # type: ignore[method-assign]
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.25)
    poptorch.trainingModel(model, quiet(), optimizer)(torch.ones(1, 2))
    same(model.scale.detach(), torch.full((2,), 0.5))


class Remembers(Scaled):
    def forward(self, x: torch.Tensor) -> Any:
        self.register_buffer("last", x * 2)
        return super().forward(x + self.last)


@pytest.mark.parametrize("training", [False, True])
def test_what_forward_registers_is_gone_after_the_capture(training: bool) -> None:
    """It has no values then, and would be taken for a buffer of the model."""
    model = Remembers()
    make = poptorch.trainingModel if training else poptorch.inferenceModel
    executor = make(model, quiet())
    x = torch.ones(1, 2)
    for _ in range(2):
        before = model.scale.detach().clone()
        same(executor(x)[0], 3 * before[None])
    executor.destroy()
    assert not model._buffers
    assert type(model._buffers) is type(model._parameters) is dict
