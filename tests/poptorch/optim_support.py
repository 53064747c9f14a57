"""What the tests of poptorch.optim share: an optimiser's update, run on tensors without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import poptorch
from poptorch.optim import _attributes, _rules

SHAPES = ((4, 3), (5,), ())


def weights(
    shapes: Sequence[Sequence[int]] = SHAPES, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [
        torch.randn(tuple(shape), generator=generator, dtype=torch.float64) for shape in shapes
    ]
    return [torch.nn.Parameter(tensor.to(dtype)) for tensor in tensors]


def gradients(like: Iterable[torch.Tensor], step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in like]


def described(optimizer: torch.optim.Optimizer, options: Any = None) -> _attributes.Description:
    options = options or poptorch.Options()
    return _attributes.describe(
        optimizer, _attributes.AttributeTracker(options), options, compiled=False
    )


class Device:
    """An optimiser at work on float32 (or half) copies of its weights, as on an IPU."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        dtype: torch.dtype = torch.float32,
        options: poptorch.Options | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.options = options or poptorch.Options()
        self.tracker = _attributes.AttributeTracker(self.options)
        self.groups: list[list[str]] = []
        self.params: dict[str, torch.Tensor] = {}
        for index, group in enumerate(optimizer.param_groups):
            names = [f"g{index}.w{i}" for i in range(len(group["params"]))]
            self.groups.append(names)
            for name, tensor in zip(names, group["params"], strict=True):
                self.params[name] = tensor.detach().to(dtype, copy=True)
        self.update = _rules.update
        self.compiled = False
        self.describe()
        named = [[(name, self.params[name]) for name in names] for names in self.groups]
        self.state = _rules.state_spec(self.description, named)
        self.compiled = True

    def describe(self) -> None:
        """As `setOptimizer` does."""
        self.description = _attributes.describe(
            self.optimizer, self.tracker, self.options, self.compiled
        )
        self.hypers = _rules.hyper_spec(self.description)

    def step(self, values: Sequence[torch.Tensor | None]) -> None:
        """One update; gradients get the loss scaling that the backward pass would give them."""
        scale = _rules.loss_scale(self.description, self.state, self.hypers)
        factor = 1.0 if scale is None else float(scale)
        grads = {
            name: (value * factor).to(self.params[name].dtype)
            for name, value in zip(self.params, values, strict=True)
            if value is not None
        }
        kept = {name: value.clone() for name, value in grads.items()}
        self.update(
            self.description, self.params, grads, self.state, self.hypers, groups=self.groups
        )
        assert all(torch.equal(grads[name], kept[name]) for name in grads), "gradients changed"

    @property
    def values(self) -> list[torch.Tensor]:
        return list(self.params.values())

    def traced(self) -> torch.fx.GraphModule:
        """The update as a graph, captured with fake tensors."""
        fakes = FakeTensorMode()
        grads = {name: value.clone() for name, value in self.params.items()}
        tables = (self.params, grads, self.state, self.hypers)
        fake = [{k: fakes.from_tensor(v) for k, v in table.items()} for table in tables]

        def whole(params: Any, grads: Any, state: Any, hypers: Any) -> list[Any]:
            _rules.update(self.description, params, grads, state, hypers, groups=self.groups)
            return []

        return make_fx(whole)(*fake)

    def replay(self) -> None:
        """From now on, run the graph captured now instead of the Python."""
        graph = self.traced()

        def run(_: Any, params: Any, grads: Any, state: Any, hypers: Any, groups: Any) -> None:
            graph(params, grads, state, hypers)

        self.update = run


def torch_steps(
    optimizer: torch.optim.Optimizer,
    values: Sequence[Sequence[torch.Tensor | None]],
    limit: float = float("inf"),
) -> list[torch.Tensor]:
    """What the host's `step()` makes of the same gradients."""
    tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    for step in values:
        present = [value for value in step if value is not None]
        norm = torch.stack([value.norm() for value in present]).norm()
        factor = min(1.0, limit / float(norm))
        for tensor, value in zip(tensors, step, strict=True):
            tensor.grad = None if value is None else (value * factor).to(tensor.dtype)
        optimizer.step()
    return tensors


def close(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], **how: float) -> None:
    how = {"rtol": 2e-5, "atol": 2e-6} | how
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.double(), other.detach().double(), **how)
