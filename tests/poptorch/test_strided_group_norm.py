"""`groupNormStridedChannelGrouping`: channel c belongs to group c % groups."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import group_norm

import poptorch
import softipu

GROUPS, CHANNELS = 3, 12


class Normalised(torch.nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm = torch.nn.GroupNorm(GROUPS, CHANNELS, dtype=dtype)
        torch.nn.init.normal_(self.norm.weight)
        torch.nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor, target: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norm(x)
        if target is None:
            return y
        return poptorch.identity_loss(((y - target) ** 2).sum(), reduction="none")


def by_index(x: torch.Tensor, norm: torch.nn.GroupNorm) -> torch.Tensor:
    """The same by an explicit list of channels, group after group."""
    order = [c for group in range(GROUPS) for c in range(group, CHANNELS, GROUPS)]
    found = group_norm(x[:, order], GROUPS, norm.weight[order], norm.bias[order], norm.eps)
    return found[:, torch.tensor(order).argsort()]


def options(strided: bool = True, iterations: int = 1) -> poptorch.Options:
    found = poptorch.Options().deviceIterations(iterations).showCompilationProgressBar(False)
    found._Popart.set("groupNormStridedChannelGrouping", strided)
    return found


@pytest.mark.parametrize("shape", [(2, CHANNELS), (2, CHANNELS, 5), (2, CHANNELS, 4, 3)])
def test_each_group_takes_every_nth_channel(shape: tuple[int, ...]) -> None:
    model, x = Normalised(), torch.randn(shape)
    executor = poptorch.inferenceModel(model, options())
    torch.testing.assert_close(executor(x), by_index(x, model.norm), rtol=1e-4, atol=1e-5)
    plain = poptorch.inferenceModel(model, options(strided=False))
    torch.testing.assert_close(plain(x), model(x), rtol=1e-4, atol=1e-5)


def test_micro_batches_together_and_halves() -> None:
    model, x = Normalised(torch.float16), torch.randn(8, CHANNELS, 4, 4).half()
    executor = poptorch.inferenceModel(model, options(iterations=4))
    for _ in range(6):  # mapped together, once that is tried
        found = executor(x)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found, by_index(x, model.norm), rtol=1e-2, atol=1e-2)


def test_gradients_are_those_of_the_same_groups() -> None:
    model, reference = Normalised(), Normalised()
    x, target = torch.randn(4, CHANNELS, 3), torch.randn(4, CHANNELS, 3)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.01)
    executor = poptorch.trainingModel(model, options(), optimizer)
    theirs = torch.optim.SGD(reference.parameters(), lr=0.01)
    for _ in range(3):
        executor(x, target)
        theirs.zero_grad()
        ((by_index(x, reference.norm) - target) ** 2).sum().backward()
        theirs.step()
    executor.copyWeightsToHost()
    for ours, plain in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_other_groups_cost_an_ipu_no_copies() -> None:
    model, x = Normalised(), torch.randn(4, CHANNELS, 32, 32)
    plain, strided = (
        softipu.estimate(model, x, options=options(strided)) for strided in (False, True)
    )
    assert strided.cycles.total == pytest.approx(plain.cycles.total, rel=0.1)


def test_channels_that_do_not_divide_are_refused_as_torch_does() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return group_norm(x, 5)

    executor = poptorch.inferenceModel(wrong, options())
    with pytest.raises(Exception, match="divisible by num_groups"):
        executor(torch.randn(2, CHANNELS))
