"""The models of the CNN harness: torchvision's, changed and wrapped as the options ask.

The order matters: weights belong to the changed layers but know nothing of stages and wrappers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from . import layers, splits, weights
from .options import Options, check_model, checked
from .vision import torchvision

CLASSES = 1000
#: Random weights are the same every time, so that runs and machines can be compared.
SEED = 0


@dataclass(frozen=True)
class Kind:
    """A model: the name of torchvision's function, and the side of its square images."""

    function: str
    side: int = 224


KINDS = {
    "resnet18": Kind("resnet18"),
    "resnet34": Kind("resnet34"),
    "resnet50": Kind("resnet50"),
    "resnet101": Kind("resnet101"),
    "resnet152": Kind("resnet152"),
    "resnext50": Kind("resnext50_32x4d"),
    "resnext101": Kind("resnext101_32x8d"),
    "mobilenet": Kind("mobilenet_v2"),
    "mobilenet-v3-small": Kind("mobilenet_v3_small"),
    "mobilenet-v3-large": Kind("mobilenet_v3_large"),
    "efficientnet-b0": Kind("efficientnet_b0"),
    "efficientnet-b4": Kind("efficientnet_b4", 380),
}


def input_shape(name: str) -> tuple[int, int, int]:
    """Channels, height and width of one image."""
    side = KINDS[check_model(name)].side
    return (3, side, side)


def build(name: str, **others: Any) -> nn.Module:
    """A model by its name; `others` are fields of `Options`."""
    return build_model(Options(model=name, **others))


def build_model(options: Options) -> nn.Module:
    """The model for inference, with all that the options ask for inside it."""
    checked(options)
    model = _network(options)
    if options.input_image_padding:
        layers.pad_first_convolution(model)
    splits.begin_stages(model, options.pipeline_splits)
    if options.half:
        model.half()
    if options.normalization_location == "ipu":
        model = layers.NormalizedInput(model, torch.float16 if options.half else torch.float32)
    if options.num_io_tiles > 0:
        model = layers.OverlappedIO(model)
    return model.eval()


def _network(options: Options) -> nn.Module:
    """The network itself, with its weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        if options.model.startswith("efficientnet"):
            model = _efficientnet(options)
        else:
            model = _function(options)(weights=None)
        layers.set_norms(model, options)
        model.eval()
        if options.weights is None:
            layers.calibrate_norms(model, KINDS[options.model].side)
    if options.weights is not None:
        weights.load(model, options.weights)
    return model


def _function(options: Options) -> Callable[..., nn.Module]:
    models = torchvision().models
    return cast("Callable[..., nn.Module]", getattr(models, KINDS[options.model].function))


def _efficientnet(options: Options) -> nn.Module:
    """torchvision's blocks, with another expansion and wider groups where asked for."""
    vision = torchvision().models.efficientnet
    width, depth, dropout = _EFFICIENTNETS[options.model]
    stages = [
        vision.MBConvConfig(
            options.efficientnet_expand_ratio if expanded else 1,
            *rest, width_mult=width, depth_mult=depth,
        )
        for expanded, *rest in _EFFICIENTNET_STAGES
    ]  # fmt: skip
    model: nn.Module = vision.EfficientNet(stages, dropout)
    if options.efficientnet_group_dim > 1:
        layers.widen_depthwise(model, options.efficientnet_group_dim)
    return model


#: Width and depth against B0, and dropout, as in the EfficientNet paper.
_EFFICIENTNETS = {"efficientnet-b0": (1.0, 1.0, 0.2), "efficientnet-b4": (1.4, 1.8, 0.4)}
#: The paper's table 1: whether channels expand, kernel, stride, channels in and out, blocks.
_EFFICIENTNET_STAGES = (
    (False, 3, 1, 32, 16, 1),
    (True, 3, 2, 16, 24, 2),
    (True, 5, 2, 24, 40, 2),
    (True, 3, 2, 40, 80, 3),
    (True, 5, 1, 80, 112, 3),
    (True, 5, 2, 112, 192, 4),
    (True, 3, 1, 192, 320, 1),
)
