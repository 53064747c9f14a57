"""Tensors on an IPU have no strides: what users' tensors have on the host decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from executor_support import quiet, same
from torch import nn

import poptorch


class Pointwise(nn.Module):
    """A convolution whose weights look contiguous and channels-last at once, then a view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.last = nn.Linear(4 * 8 * 8, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        y = self.conv(x)
        y = self.last(y.view(y.shape[0], -1))
        return y, nn.functional.cross_entropy(y, target)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_views_hold_for_weights_in_channels_last(training: bool, batch: int) -> None:
    torch.manual_seed(0)
    model = Pointwise()
    x, target = torch.randn(batch * 2, 3, 8, 8), torch.arange(batch * 2) % 3
    wanted = model(x, target)[0]
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    options = quiet()
    if training:
        options.Training.gradientAccumulation(2)
        options.outputMode(poptorch.OutputMode.All)
        executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), 0))
    else:
        executor = poptorch.inferenceModel(model, options.deviceIterations(2))
    for _ in range(4):
        same(executor(x, target)[0], wanted)


class Flattens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.register_buffer("table", torch.randn(26 * 26, 4).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        found: torch.Tensor = y.view(y.shape[0], -1) * self.table.view(-1)  # type: ignore[operator]
        return found


def _columns(x: torch.Tensor) -> torch.Tensor:
    return x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)


def _spread(x: torch.Tensor) -> torch.Tensor:
    """Contiguous, as torch has it, with the strides of channels-last."""
    found = torch.empty_strided(x.shape, (28 * 28, 1, 28, 1)).copy_(x)
    assert found.is_contiguous()
    return found


@pytest.mark.parametrize("layout", [_columns, _spread])
def test_later_inputs_may_have_other_strides(
    layout: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    model = Flattens()
    executor = poptorch.inferenceModel(model, quiet().deviceIterations(2))
    x = torch.randn(4, 1, 28, 28)
    y = model.conv(x)
    wanted = y.reshape(4, -1) * model.table.reshape(-1)  # type: ignore[operator]
    for given in (x, *[layout(x)] * 4):
        same(executor(given), wanted)


class Turned(nn.Module):
    """Its view is legal only in the layout that the user's tensors have."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turned", torch.randn(3, 4).t())

    def forward(self, x: torch.Tensor) -> Any:
        flat = x.permute(0, 2, 3, 1).view(2, -1)
        return flat, x.permute(0, 2, 3, 1).view_as(flat), self.turned.t().view(size=(12,))  # type: ignore[operator]


def test_a_view_of_what_is_not_contiguous_is_a_reshape() -> None:
    model = Turned()
    x = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    for found, wanted in zip(poptorch.inferenceModel(model, quiet())(x), model(x), strict=True):
        same(found, wanted)


class Writes(Turned):
    def forward(self, x: torch.Tensor) -> Any:
        self.turned.t().view(-1).add_(x)  # type: ignore[operator]
        return self.turned * 1  # type: ignore[operator]


def test_a_write_that_would_be_lost_is_refused() -> None:
    with pytest.raises(
        poptorch.Error, match=r"(?s)writes.*view\(\).*Way out: Write to the tensor"
    ) as raised:
        poptorch.inferenceModel(Writes(), quiet())(torch.arange(12.0))
    assert "in forward: `self.turned.t().view(-1).add_(x)" in str(raised.value)
