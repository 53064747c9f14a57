"""Operators with several results: each can be read, and none is without a cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softipu

IMAGES = torch.rand(4, 8, 16, 16)
ROWS = torch.rand(4, 32)
CLASSES = torch.zeros(4, 32, dtype=torch.long)
GRID = torch.zeros(4, 8, 8, 2)
BAGS = (torch.tensor([0, 1, 2, 3, 1, 0]), torch.tensor([0, 2, 4]))

Several = Callable[[Tensor], tuple[Tensor, ...]]


class AllResults(nn.Module):
    def __init__(self, function: Several) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        results = self.function(x * 1.5)
        return tuple(one * 2 if one.is_floating_point() else one + 1 for one in results)


class Trained(nn.Module):
    """A weight in front of an operator, so that its gradient is needed as well."""

    def __init__(self, function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(shape))
        self.function = function

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        result = self.function(self.weight * x)
        return result, F.mse_loss(result, torch.zeros_like(result))


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x: x.max(1), ROWS),
        (lambda x: torch.aminmax(x, dim=1), ROWS),
        (lambda x: x.median(1), ROWS),
        (lambda x: torch.var_mean(x, 1), ROWS),
        (lambda x: torch.cummax(x, 1), ROWS),
        (lambda x: torch.topk(x, 3), ROWS),
        (lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGES),
        (lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True), IMAGES),
        (lambda x: torch.native_dropout(x, 0.5, True), ROWS),
        (lambda x: x.split(2), ROWS),
        (lambda x: torch.embedding_bag(x, *BAGS)[:3], ROWS),
        (lambda x: torch.ops.aten.multilabel_margin_loss_forward(x, CLASSES, 1), ROWS),
        (lambda x: torch.native_layer_norm(x, (16,), None, None, 1e-5), IMAGES),
    ],
)
def test_every_result_can_be_read(function: Several, given: Tensor) -> None:
    found = softipu.estimate(AllResults(function), (given,))
    assert not found.unknown
    assert found.cycles.total > 0


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda w: F.embedding_bag(BAGS[0], w, BAGS[1], mode="sum"), ROWS),
        (lambda w: F.prelu(w, w.mean().reshape(1)), ROWS),
        (lambda w: F.grid_sample(w, GRID, align_corners=False), IMAGES),
        (lambda w: F.multilabel_margin_loss(w, CLASSES), ROWS),
        (lambda w: F.multi_margin_loss(w, CLASSES[:, 0]), ROWS),
    ],
)
def test_so_can_those_of_their_gradients(
    function: Callable[[Tensor], Tensor], given: Tensor
) -> None:
    found = softipu.estimate(Trained(function, tuple(given.shape)), (given,), training=True)
    assert not found.unknown
    assert any(step.phase == "backward" for step in found.steps)
