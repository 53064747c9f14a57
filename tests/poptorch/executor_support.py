"""What the tests of the executor share: small models, and the plain PyTorch loop they must equal."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import poptorch


class Net(torch.nn.Module):
    """A layer and its loss: returns the output, and the loss as a 0-d tensor."""

    def __init__(self, inputs: int = 3, outputs: int = 2) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(inputs, outputs)
        self.calls = 0

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        out = torch.tanh(self.fc(x))
        return out, torch.nn.functional.mse_loss(out, target)


class Norm(torch.nn.Module):
    """Batch norm in training: what one micro-batch sees changes outputs and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)
        self.bn = torch.nn.BatchNorm1d(4, momentum=0.3)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.head(torch.relu(self.bn(self.fc(x))))
        return out, torch.nn.functional.mse_loss(out, target)


def seeded(make: Callable[..., torch.nn.Module], *args: Any, seed: int = 7) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make(*args)


def batch(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, generator=generator), torch.randn(size, 2, generator=generator)


@dataclass(frozen=True)
class Shape:
    """The counts that multiply a micro-batch, as a test wants them."""

    micro: int = 2
    iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    group: int = 1
    orthogonal: bool = False

    @property
    def groups(self) -> int:
        return self.replicas // self.group

    @property
    def host(self) -> int:
        return self.micro * self.iterations * self.accumulation * self.groups

    def options(self, *, mode: poptorch.OutputMode | None = None, period: int = 1) -> Any:
        options = quiet()
        options.deviceIterations(self.iterations).replicationFactor(self.replicas)
        options.Training.gradientAccumulation(self.accumulation)
        if self.group > 1:
            kind = poptorch.CommGroupType
            options.inputReplicaGrouping(
                self.group, kind.Orthogonal if self.orthogonal else kind.Consecutive
            )
        if mode is not None:
            options.outputMode(mode, period if mode == poptorch.OutputMode.EveryN else None)
        return options

    def steps(self, tensors: Sequence[torch.Tensor]) -> list[list[list[list[torch.Tensor]]]]:
        """The micro-batches by iteration, accumulation and replica, cut out by plain slicing."""
        found = []
        for iteration in range(self.iterations):
            turns = []
            for turn in range(self.accumulation):
                first = (iteration * self.accumulation + turn) * self.groups
                rows = []
                for replica in range(self.replicas):
                    step = replica % self.groups if self.orthogonal else replica // self.group
                    start = (first + step) * self.micro
                    rows.append([tensor[start : start + self.micro] for tensor in tensors])
                turns.append(rows)
            found.append(turns)
        return found


def quiet() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False)


class Loop:
    """The loop a person would write in plain PyTorch; replicas are one more loop."""

    def __init__(self, model: torch.nn.Module, shape: Shape, *, mean: bool = True, **sgd: Any):
        self.model = copy.deepcopy(model)
        self.shape = shape
        self.mean = mean
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(trained, **(sgd or {"lr": 0.1}))

    def train(self, *tensors: torch.Tensor) -> list[list[list[torch.Tensor]]]:
        """One call: the outputs of each turn, by replica."""
        outputs = []
        count = self.shape.accumulation * self.shape.replicas
        for iteration in self.shape.steps(tensors):
            self.optimizer.zero_grad()
            for turn in iteration:
                results = []
                # The first replica's running statistics are the ones that reach the host.
                statistics = None
                for micro in turn:
                    result = self.model(*micro)
                    (result[-1] / count if self.mean else result[-1]).backward()
                    results.append([tensor.detach() for tensor in result])
                    if statistics is None:
                        statistics = {n: b.clone() for n, b in self.model.named_buffers()}
                for name, buffer in self.model.named_buffers():
                    buffer.copy_((statistics or {})[name])
                outputs.append(results)
            self.optimizer.step()
        return outputs

    def infer(self, *tensors: torch.Tensor) -> list[list[list[torch.Tensor]]]:
        with torch.no_grad():
            return [
                [list(self.model(*micro)) for micro in turn]
                for iteration in self.shape.steps(tensors)
                for turn in iteration
            ]


def returned(
    turns: list[list[list[torch.Tensor]]], index: int, mode: poptorch.OutputMode, period: int = 1
) -> torch.Tensor:
    """One output as the host gets it, from the results of each turn and replica."""
    column = [[replica[index] for replica in turn] for turn in turns]
    if mode == poptorch.OutputMode.Final:
        column = column[-1:]
    elif mode == poptorch.OutputMode.EveryN:
        column = column[period - 1 :: period]
    elif mode == poptorch.OutputMode.Sum:
        totals = [torch.stack(list(values)).sum(0) for values in zip(*column, strict=True)]
        column = [totals]
    parts = [value for turn in column for value in turn]
    if parts[0].dim() == 0:
        return parts[0] if len(parts) == 1 else torch.stack(parts)
    return torch.cat(parts)


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-6)


def same_weights(model: torch.nn.Module, expected: torch.nn.Module, *, rounds: int = 1) -> None:
    """Equal up to rounding, of which many rounds of training make more."""
    given, wanted = model.state_dict(), expected.state_dict()
    assert given.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(
            given[name],
            value,
            rtol=2e-5 * rounds,
            atol=2e-6 * rounds,
            msg=lambda text, name=name: f"{name}: {text}",
        )
