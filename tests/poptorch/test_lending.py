"""What modules look like while they are captured, and afterwards."""

from __future__ import annotations

import copy
import io
import types
from typing import Any

import pytest
import torch
from executor_support import quiet, same
from torch import nn
from torch.nn.utils import prune

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


class Merges(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x: torch.Tensor) -> Any:
        self._buffers |= {"last": x * 2}
        return super().forward(x + self.last + self.offset)


def test_tables_of_a_module_take_several_entries_at_once_in_a_capture() -> None:
    model = Merges()
    x = torch.ones(1, 2)
    same(poptorch.inferenceModel(model, quiet())(x)[0], 3 * x + 1)
    assert list(model._buffers) == ["offset"]
    assert type(model._buffers) is dict


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 3)
        self.state: tuple[torch.Tensor, torch.Tensor] | None = None
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        self.state = self.cell(x, self.state)
        self.weights = self.state[0].softmax(1)
        return self.state[0]


def test_attributes_that_forward_assigns_hold_no_tensors_without_values() -> None:
    model = nn.Sequential(Stateful(), nn.Linear(3, 2)).eval()
    part: Any = model[0]
    x = torch.randn(2, 3)
    found = [poptorch.inferenceModel(model, quiet())(x) for _ in range(2)]
    same(found[0], found[1])
    assert part.state is None
    assert part.seen == [2, 2]
    assert not hasattr(part, "weights")
    torch.save(model, io.BytesIO())
    same(copy.deepcopy(model)(x), found[0])


def test_the_weights_of_a_pruned_layer_can_be_looked_at_after_training() -> None:
    model = Scaled()
    prune.l1_unstructured(model, "scale", 1)
    whole = nn.Sequential(model)
    poptorch.trainingModel(whole, quiet(), poptorch.optim.SGD(whole.parameters(), lr=0.25))(
        torch.ones(1, 2)
    )
    assert int((model.scale == 0).sum()) == 1
    assert sorted(model.scale_orig.tolist()) == [0.75, 1.0]


def test_a_tensor_kept_from_another_capture_is_refused() -> None:
    kept: list[torch.Tensor] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return x + kept[0]

    x = torch.ones(2)
    same(poptorch.inferenceModel(model, quiet())(x), 3 * x)
    with pytest.raises(poptorch.Error, match="earlier capture(.|\n)*no values") as raised:
        poptorch.inferenceModel(model, quiet())(x)
    assert raised.value.code == "SIPU-2002"
    assert "in model: `return x + kept[0]`" in str(raised.value)
