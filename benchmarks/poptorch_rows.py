"""The rows of the PopTorch benchmark: models, batches, and three ways to run each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from . import models

LENGTH = 64


@dataclass(frozen=True)
class Row:
    """One workload. `many` is gradient accumulation in training, device iterations else."""

    name: str
    make: Callable[[], nn.Module]
    micro: int
    many: int
    training: bool
    shape: tuple[int, ...]
    classes: int
    half: bool = False
    small: bool = True

    @property
    def tokens(self) -> bool:
        return len(self.shape) == 1

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        model = models.WithLoss(self.make()).train() if self.training else self.make().eval()
        return model.half() if self.half else model

    def inputs(self, times: int = 1) -> list[torch.Tensor]:
        """One host batch, or several of them in one."""
        torch.manual_seed(1)
        count = self.micro * self.many * times
        if self.tokens:
            x = torch.randint(0, self.classes, (count, *self.shape))
            target = torch.randint(0, self.classes, (count, *self.shape))
        else:
            x = torch.randn(count, *self.shape)
            target = torch.randint(0, self.classes, (count,))
        x = x.half() if self.half else x
        return [x, target] if self.training else [x]


_IMAGE, _DIGIT = (3, 224, 224), (1, 28, 28)


def _small_transformer() -> nn.Module:
    return models.Transformer(4, 128, 4, 1000, LENGTH)


def _bert_base() -> nn.Module:
    return models.Transformer(12, 768, 12, 30522, 128)


ROWS = (
    Row("MNIST CNN training, 16", models.MnistCnn, 16, 1, True, _DIGIT, 10),
    Row("MNIST CNN training, 16 x 8", models.MnistCnn, 16, 8, True, _DIGIT, 10),
    Row("MNIST CNN inference, 16 x 32", models.MnistCnn, 16, 32, False, _DIGIT, 10),
    Row("ResNet-18 inference, 1 x 16", models.resnet18, 1, 16, False, _IMAGE, 1000),
    Row("ResNet-50 inference, 4 x 4", models.resnet50, 4, 4, False, _IMAGE, 1000, small=False),
    Row("ResNet-18 training, 4 x 4", models.resnet18, 4, 4, True, _IMAGE, 1000),
    Row("Transformer training, 4 x 8", _small_transformer, 4, 8, True, (LENGTH,), 1000),
    Row("ResNet-18 fp16 inference, 1 x 16", models.resnet18, 1, 16, False, _IMAGE, 1000, half=True),
)
GPU_ROWS = (
    *ROWS,
    Row("BERT-base training, 2 x 16", _bert_base, 2, 16, True, (128,), 30522, small=False),
)


def hand_written(row: Row, device: str, *, compiled: bool) -> Callable[[], object]:
    """What a person writes without PopTorch: a loop over micro-batches, maybe torch.compile'd."""
    model = row.model().to(device)
    call = torch.compile(model) if compiled else model
    inputs = row.inputs()
    if row.training:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def batches() -> list[tuple[torch.Tensor, ...]]:
        on_device = [tensor.to(device, non_blocking=True) for tensor in inputs]
        return list(zip(*(tensor.chunk(row.many) for tensor in on_device), strict=True))

    def train() -> object:
        optimizer.zero_grad()
        for x, target in batches():
            out, loss = call(x, target)
            (loss / row.many).backward()
        optimizer.step()
        return out.detach().cpu(), loss.detach().cpu()

    def infer() -> object:
        with torch.no_grad():
            return torch.cat([call(x) for (x,) in batches()]).cpu()

    return train if row.training else infer


def ours(row: Row, iterations: int = 1) -> Callable[[], object]:
    """The same by PopTorch; in training as many times as there are device iterations."""
    import poptorch

    options = poptorch.Options().showCompilationProgressBar(False)
    inputs = row.inputs(iterations)
    model = row.model()
    if row.training:
        options.deviceIterations(iterations).Training.gradientAccumulation(row.many)
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        executor = poptorch.trainingModel(model, options, optimizer)
    else:
        executor = poptorch.inferenceModel(model, options.deviceIterations(row.many))
    call = lambda: executor(*inputs)  # noqa: E731
    call.executor = executor  # type: ignore[attr-defined]
    return call
