"""What programs call through `torch.ops.poptorch` itself, as the public CNN and DINO programs do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import poptorch


class Scoped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)
        self.inner.register_forward_pre_hook(
            lambda _module, _inputs: torch.ops.poptorch.push_name_scope("hidden")
        )
        self.inner.register_forward_hook(
            lambda _module, _inputs, _result: torch.ops.poptorch.pop_name_scope()
        )

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x), x + 1


def test_name_scopes_pushed_by_hooks_name_the_ops_and_change_nothing() -> None:
    model = Scoped()
    x = torch.randn(4, 3)
    executor = poptorch.inferenceModel(model)
    for got, wanted in zip(executor(x), model(x), strict=True):
        torch.testing.assert_close(got, wanted)
    names = executor.getTensorNames()
    assert any("hidden/" in name for name in names)
    assert not all("hidden/" in name for name in names)


def test_a_cast_inside_the_model() -> None:
    class Casting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = torch.ops.poptorch.internal_cast(x, "FLOAT")
            return torch.ops.poptorch.internal_cast(torch.erf(wide), "FLOAT16")

    x = torch.linspace(-2, 2, 16).half()
    got = poptorch.inferenceModel(Casting())(x)
    assert got.dtype is torch.float16
    torch.testing.assert_close(got, torch.erf(x.float()).half())


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="'INT8'.*FLOAT, FLOAT16"):
        torch.ops.poptorch.internal_cast(torch.ones(2), "INT8")
