"""Changes of a network's layers: norms, groups, a padded input; and what goes around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import poptorch

from ..errors import GroupsUneven
from .options import Options

#: Of ImageNet's images as numbers from 0 to 1, by channel: what torchvision's weights expect.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
_GROUP_NORM_EPSILON = 1e-5


def set_norms(model: nn.Module, options: Options) -> None:
    """Make the norm layers those that the options ask for."""
    if options.norm_type == "none":
        replace(model, nn.BatchNorm2d, lambda _name, _norm: nn.Identity())
    elif options.norm_type == "group":
        groups, epsilon = options.norm_num_groups, options.norm_eps or _GROUP_NORM_EPSILON
        replace(model, nn.BatchNorm2d, lambda name, norm: _group_norm(name, norm, groups, epsilon))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = module.eps if options.norm_eps is None else options.norm_eps
            if options.batchnorm_momentum is not None:
                module.momentum = options.batchnorm_momentum


def _group_norm(name: str, norm: Any, groups: int, epsilon: float) -> nn.Module:
    if norm.num_features % groups:
        raise GroupsUneven(
            f"The {norm.num_features} channels of {_slashed(name)} don't make {groups} groups of "
            "one size.",
            remedy="Choose a --norm-num-groups that divides the channels of every norm layer.",
        )
    return nn.GroupNorm(groups, norm.num_features, epsilon)


def calibrate_norms(model: nn.Module, side: int) -> None:
    """Give batch norms the statistics of some images, since those of fresh layers fit nothing.

    Without, deep networks with random weights fade: EfficientNet's outputs would all be 0 in half
    precision, and no comparison of values could fail."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        model(_coarse_and_fine(2, side))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval()
        norm.momentum = momentum


def _coarse_and_fine(count: int, side: int) -> torch.Tensor:
    """Normalised images with large patches and small detail, as photographs have."""
    patches = nn.functional.interpolate(torch.randn(count, 3, 7, 7), size=(side, side))
    return patches + torch.randn(count, 3, side, side)


def widen_depthwise(model: nn.Module, width: int) -> None:
    """Depthwise convolutions become grouped ones, with `width` channels per group."""
    replace(model, nn.Conv2d, lambda name, conv: _wider(name, conv, width))


def _wider(name: str, conv: Any, width: int) -> nn.Module:
    channels = conv.in_channels
    if conv.groups != channels or channels == 1:
        return conv  # type: ignore[no-any-return]
    # A layer with fewer channels than a group has is one group.
    groups = max(channels // width, 1)
    if channels % groups:
        raise GroupsUneven(
            f"The {channels} channels of {_slashed(name)} don't make {groups} groups of one size.",
            remedy=f"Choose an --efficientnet-group-dim that divides {channels}.",
        )
    return nn.Conv2d(
        channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation,
        groups, bias=conv.bias is not None,
    )  # fmt: skip


def pad_first_convolution(model: nn.Module) -> None:
    """The first convolution gets a fourth input channel, which sees zeros."""
    done: list[nn.Module] = []

    def padded(_name: str, conv: nn.Conv2d) -> nn.Module:
        if done:
            return conv
        done.append(conv)
        return PaddedConvolution(conv)

    replace(model, nn.Conv2d, padded)


class PaddedConvolution(nn.Module):
    """A convolution of images that gives them another channel, of zeros, first."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            conv.in_channels + 1, conv.out_channels, conv.kernel_size, conv.stride, conv.padding,
            conv.dilation, bias=conv.bias is not None,
        )  # fmt: skip
        with torch.no_grad():
            self.conv.weight.zero_()
            self.conv.weight[:, : conv.in_channels] = conv.weight
            if self.conv.bias is not None:
                self.conv.bias.copy_(conv.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(nn.functional.pad(images, (0, 0, 0, 0, 0, 1)))
        return result


class NormalizedInput(nn.Module):
    """Takes images as numbers from 0 to 255, bytes or not, and normalises them on the IPU."""

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        scale, shift = scale_and_shift(dtype)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(images.to(self.dtype) * self.scale - self.shift)
        return result


def scale_and_shift(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A normalised pixel is `pixel * scale - shift`, for pixels from 0 to 255."""
    mean, deviation = torch.tensor(MEAN), torch.tensor(DEVIATION)
    scale, shift = 1 / (255 * deviation), mean / deviation
    return scale.view(3, 1, 1).to(dtype), shift.view(3, 1, 1).to(dtype)


class OverlappedIO(nn.Module):
    """Inputs and outputs travel while the IPU computes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mode = poptorch.OverlapMode.OverlapAccumulationLoop
        images = poptorch.set_overlap_for_input(images, mode)
        result: torch.Tensor = poptorch.set_overlap_for_output(self.model(images), mode)
        return result


def replace(model: nn.Module, kind: type[nn.Module], new: Callable[[str, Any], nn.Module]) -> None:
    """Put `new(name, layer)` in the place of each layer of a kind."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, kind):
            model.set_submodule(name, new(name, layer))


def _slashed(name: str) -> str:
    return name.replace(".", "/")
