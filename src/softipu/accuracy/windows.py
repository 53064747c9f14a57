"""The Swin transformers of graphcore/examples (vision/swin/pytorch), without weights.

Windows of 7 × 7 patches are padded to 56 words, and masks keep what is padded out of the sums. A
custom operator of that program copies tensors to where it wants them: `_Placed` stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poptorch

SIDE, CLASSES = 224, 1000
_PATCH, _WINDOW = 4, 7
_WORDS, _PADDED = 49, 56


@dataclass(frozen=True)
class Shape:
    """The size of a Swin transformer: width and heads double with each of the four parts."""

    width: int
    depths: tuple[int, ...]
    heads: int
    #: Of the last block; blocks before it are left out less often.
    left_out: float


SHAPES = {
    "tiny": Shape(96, (2, 2, 6, 2), 3, 0.2),
    "base": Shape(128, (2, 2, 18, 2), 4, 0.5),
    "large": Shape(192, (2, 2, 18, 2), 6, 0.2),
}


class _Placed(torch.autograd.Function):
    """The same elements elsewhere; the gradient travels, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].clone()


class _PlacedBack(torch.autograd.Function):
    """Only the gradient travels: forwards it stays where it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].clone()


def _placed(x: Tensor) -> Tensor:
    made: Tensor = _Placed.apply(x)  # type: ignore[no-untyped-call]
    return made


def _placed_back(x: Tensor) -> Tensor:
    made: Tensor = _PlacedBack.apply(x)  # type: ignore[no-untyped-call]
    return made


class WindowAttention(nn.Module):
    """Attention of the words of a window, with a bias by how far they are apart."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.bias = nn.Parameter(torch.zeros((2 * _WINDOW - 1) ** 2, heads))
        self.apart: Tensor
        self.known: Tensor
        self.unknown: Tensor
        self.counted: Tensor
        self.register_buffer("apart", torch.zeros(_WORDS * _WORDS, dtype=torch.int64))
        self.register_buffer("known", torch.ones(_PADDED, 3 * width))
        self.register_buffer("unknown", torch.zeros(_PADDED, _PADDED))
        self.register_buffer("counted", torch.ones(_PADDED, _PADDED))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        windows, words, width = x.shape
        size, more = width // self.heads, _PADDED - words
        x = _placed(F.pad(x, (0, 0, 0, more)))
        qkv = _placed_back(_placed(self.qkv(x)) * self.known)
        qkv = qkv.view(windows, _PADDED, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        q, k, v = _placed(qkv.contiguous()).unbind(0)
        scores = _placed(_placed_back(q * size**-0.5) @ k.transpose(2, 3))
        bias = self.bias[self.apart].view(words, words, -1).permute(2, 0, 1).contiguous()
        scores = scores + _placed(F.pad(bias, (0, more, 0, more)))
        if mask is not None:
            wide = _placed(F.pad(mask, (0, more, 0, more)))
            each = scores.view(-1, len(mask), self.heads, _PADDED, _PADDED)
            scores = (each + wide[None, :, None]).view(windows, self.heads, _PADDED, _PADDED)
        weights = (scores + self.unknown).softmax(-1) * self.counted
        mixed = (_placed_back(weights) @ v).transpose(1, 2).reshape(windows, _PADDED, width)
        result: Tensor = _placed(self.out(mixed))[:, :words]
        return result


class Block(nn.Module):
    def __init__(self, width: int, heads: int, side: int, shift: int, left_out: float) -> None:
        super().__init__()
        self.side, self.left_out = side, left_out
        self.shift = 0 if side <= _WINDOW else shift
        self.norm, self.attention = nn.LayerNorm(width), WindowAttention(width, heads)
        self.last_norm = nn.LayerNorm(width)
        self.wide, self.thin = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        masks = torch.zeros((side // _WINDOW) ** 2, _WORDS, _WORDS) if self.shift else None
        self.register_buffer("masks", masks)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, width = x.shape
        x = _placed(x)
        y = self.norm(x).view(batch, self.side, self.side, width)
        if self.shift:
            y = _placed(_rolled(_rolled(y, self.shift, 1), self.shift, 2))
        across = self.side // _WINDOW
        y = y.view(batch, across, _WINDOW, across, _WINDOW, width).permute(0, 1, 3, 2, 4, 5)
        y = self.attention(_placed(y.contiguous()).view(-1, _WORDS, width), self.masks)
        y = y.reshape(batch, across, across, _WINDOW, _WINDOW, width).permute(0, 1, 3, 2, 4, 5)
        y = _placed(y.contiguous()).view(batch, self.side, self.side, width)
        if self.shift:
            y = _rolled(_rolled(y, -self.shift, 1), -self.shift, 2)
        x = x + self._sometimes(_placed(y).view(batch, -1, width))
        inner = F.gelu(self.wide(_placed_back(self.last_norm(x))))
        result: Tensor = x + self._sometimes(_placed(self.thin(inner)))
        return result

    def _sometimes(self, x: Tensor) -> Tensor:
        """Whole samples are left out at random."""
        if not self.left_out:
            return x
        kept = 1 - self.left_out
        return x.div(kept) * (kept + torch.rand(len(x), 1, 1, dtype=x.dtype)).floor()


def _rolled(x: Tensor, by: int, axis: int) -> Tensor:
    by %= x.shape[axis]
    return torch.cat((x.narrow(axis, by, x.shape[axis] - by), x.narrow(axis, 0, by)), axis)


class Merging(nn.Module):
    """Four neighbours become one word of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.thin = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, words, width = x.shape
        half = round(words**0.5) // 2
        x = x.view(batch, half, 2, half, 2, width).permute(0, 1, 3, 4, 2, 5).contiguous()
        result: Tensor = self.thin(self.norm(_placed(x.view(batch, -1, 4 * width))))
        return result


class Swin(nn.Module):
    """With its loss. `split`: how many blocks each IPU has."""

    def __init__(self, shape: Shape, split: tuple[int, ...]) -> None:
        super().__init__()
        width, side = shape.width, SIDE // _PATCH
        self.split = split
        self.patches, self.first_norm = nn.Conv2d(3, width, _PATCH, _PATCH), nn.LayerNorm(width)
        self.blocks, self.merges = nn.ModuleList(), nn.ModuleList()
        count = sum(shape.depths)
        for part, depth in enumerate(shape.depths):
            for number in range(depth):
                done = len(self.blocks)
                shift = _WINDOW // 2 if number % 2 else 0
                left_out = shape.left_out * done / (count - 1)
                self.blocks.append(Block(width, shape.heads << part, side, shift, left_out))
                last = number == depth - 1 and part < len(shape.depths) - 1
                self.merges.append(Merging(width) if last else nn.Identity())
            width, side = (width, side) if part == len(shape.depths) - 1 else (2 * width, side // 2)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with poptorch.Block("stage 0", ipu_id=0):
            x = self.first_norm(_placed(self.patches(images).flatten(2).transpose(1, 2)))
        ipus = [ipu for ipu, count in enumerate(self.split) for _ in range(count)]
        for ipu, block, merge in zip(ipus, self.blocks, self.merges, strict=True):
            with poptorch.Block(f"stage {ipu}", ipu_id=ipu):
                x = merge(block(x))
        with poptorch.Block(f"stage {ipus[-1]}", ipu_id=ipus[-1]):
            logits = self.head(self.norm(x).mean(1))
            each = -(labels * F.log_softmax(logits.float(), -1)).sum(-1)
            return logits, poptorch.identity_loss(each.mean(), "none")
