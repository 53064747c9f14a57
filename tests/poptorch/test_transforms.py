"""torch.func in `forward`: vmap, grad and their kin are part of the captured graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from executor_support import quiet, same
from torch import nn

import poptorch


@pytest.mark.parametrize(
    "model",
    [
        lambda x: torch.vmap(nn.functional.layer_norm, in_dims=(0, None))(x, (6,)),
        lambda x: torch.vmap(torch.vmap(lambda value: value.sin() * 2))(x),
        lambda x: torch.vmap(lambda row: row * torch.ones(6) + torch.arange(6.0))(x),
        lambda x: x + torch.vmap(lambda row: row * 2)(torch.ones(4, 6)),
        torch.func.grad(lambda x: (x**3).sum()),
        torch.vmap(torch.func.grad(lambda x: (x**3).sum())),
        torch.func.jacrev(torch.tanh),
        torch.func.jacfwd(torch.tanh),
        torch.func.hessian(lambda x: x.tanh().sum()),
        lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
        torch.vmap(lambda row: poptorch.set_available_memory(row @ torch.ones(6, 2), 0.2)),
    ],
    ids=[
        "vmap", "vmap of vmap", "constants", "vmap of a constant", "grad", "vmap of grad", "jacrev",
        "jacfwd", "hessian", "jvp", "hints",
    ],
)  # fmt: skip
def test_transformed_functions_are_captured(model: Callable[..., Any]) -> None:
    executor = poptorch.inferenceModel(lambda x: model(x), quiet())
    for seed in range(2):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        found = executor(x)
        assert type(found) is torch.Tensor
        same(found, model(x))


class Ensemble(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(4, 3, 6))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        y = torch.vmap(lambda weight: x @ weight.T)(self.weights).mean(0)
        return y, nn.functional.cross_entropy(y, target)


class Climbing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        slope = torch.func.grad(lambda value: self.fc(value).tanh().sum())(x)
        y = self.fc(x + slope)
        return y, nn.functional.cross_entropy(y, target)


class Adversarial(nn.Module):
    """The loss inside of `grad` is not the one that the model is trained for."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        loss = nn.functional.cross_entropy
        slope = torch.func.grad(lambda value: loss(self.fc(value), target))(x)
        y = self.fc(x + 0.1 * slope.sign())
        return y, loss(y, target)


class LossOfEach(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        y = self.fc(x)
        losses = torch.vmap(nn.functional.cross_entropy)(y, target)
        return y, poptorch.identity_loss(losses, reduction="mean")


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("make", [Ensemble, Climbing, Adversarial, LossOfEach])
def test_weights_are_trained_through_transforms(
    make: Callable[[], nn.Module], accumulation: int
) -> None:
    torch.manual_seed(0)
    model = make()
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    options = quiet()
    options.Training.gradientAccumulation(accumulation)
    trainer = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        x, target = torch.randn(8, 6), torch.randint(3, (8,))
        trainer(x, target)
        optimizer.zero_grad()
        plain(x, target)[1].backward()
        optimizer.step()
    for found, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        same(found.detach(), wanted.detach())


def test_a_view_of_turned_dimensions_is_a_copy_in_vmap_too() -> None:
    x = torch.randn(2, 3, 4)
    found = poptorch.inferenceModel(lambda x: torch.vmap(lambda y: y.t().view(-1))(x), quiet())(x)
    same(found, x.transpose(1, 2).reshape(2, -1))


def looped(row: torch.Tensor) -> torch.Tensor:
    return poptorch.for_loop(3, lambda y: y * 2, [row])[0]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("for_loop", torch.vmap(looped)),
        ("for_loop", torch.func.grad(lambda x: looped(x).sum())),
        (
            "for_loop",
            torch.vmap(lambda row: poptorch.for_loop(2, lambda y: y + row, [torch.ones(3)])[0]),
        ),
        (
            "cond",
            torch.vmap(
                lambda row: poptorch.cond(row.sum() > 0, torch.sin, [row], torch.cos, [row])[0]
            ),
        ),
    ],
    ids=["vmap", "grad", "used in the body", "cond"],
)
def test_control_flow_inside_of_a_transform_is_refused_by_name(name: str, function: Any) -> None:
    with pytest.raises(
        poptorch.Error, match=f"poptorch.{name} is called inside of torch.vmap"
    ) as e:
        poptorch.inferenceModel(lambda x: function(x), quiet())(torch.ones(2, 3))
    assert e.value.code == "SIPU-2002"
    assert "Cannot access storage" not in str(e.value)


def test_a_transform_inside_of_control_flow_is_captured() -> None:
    """What the refusal of the other order says to do."""

    def model(x: torch.Tensor) -> list[torch.Tensor]:
        mapped = torch.vmap(lambda row: row * row.sum())
        looped = poptorch.for_loop(3, mapped, [x])
        return poptorch.cond(x.sum() > 0, mapped, looped, torch.cos, looped)

    x = torch.rand(2, 3)
    same(poptorch.inferenceModel(model, quiet())(x)[0], model(x)[0])
