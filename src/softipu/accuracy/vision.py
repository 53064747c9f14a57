"""Convolutional networks of torchvision as published IPU benchmarks run them, without weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

import poptorch

from ..bench import layers, models
from ..bench.options import Options


def network(name: str, group_width: int = 0, **changes: Any) -> nn.Module:
    """A network in half precision; `changes` are fields of the harness's options. A ResNet with a
    `group_width` is a ResNeXt of 32 groups."""
    options = Options(model=name, **changes)
    if name.startswith("efficientnet"):
        model = models._efficientnet(options)
    else:
        groups = {"groups": 32, "width_per_group": group_width} if group_width else {}
        model = models._function(options)(weights=None, **groups)
    layers.set_norms(model, options)
    return model.half()


def side_of(name: str) -> int:
    """Height and width of a network's images."""
    return models.KINDS[name].side


def begin_stages(model: nn.Module, splits: Sequence[str]) -> None:
    for ipu, path in enumerate(splits, start=1):
        poptorch.BeginBlock(model.get_submodule(path), ipu_id=ipu)


def keep(model: nn.Module, paths: Sequence[str]) -> None:
    """Outputs of these layers are checkpoints of recomputation."""
    for path in paths:
        model.get_submodule(path).register_forward_hook(
            lambda _module, _inputs, result: poptorch.recomputationCheckpoint(result)
        )


class _InHalf(nn.Module):
    """A weight as its layer uses it."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.half()


def hold_weights_in_single(model: nn.Module) -> None:
    """Weights stay in single precision and are rounded where a layer uses them (`16.32`)."""
    for module in list(model.modules()):
        for name, weight in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(weight.float()))
            parametrize.register_parametrization(module, name, _InHalf(), unsafe=True)


class Classifying(nn.Module):
    """Images travel as bytes and are normalised on the IPU."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = layers.NormalizedInput(model, torch.float16)

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.model(images)
        return result


class ClassifyingTrained(Classifying):
    """The same with its loss."""

    def __init__(self, model: nn.Module, last_ipu: int = 0) -> None:
        super().__init__(model)
        self.last_ipu = last_ipu

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        logits = self.model(images)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        return poptorch.identity_loss(loss, "mean")
