"""The U-Net of graphcore/examples (vision/unet_medical/tensorflow2), without weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poptorch

#: Pixels of a side, of images and of what is known of them; convolutions have no padding.
SIDE, KNOWN_SIDE = 572, 388
CLASSES = 2
_WIDTHS = (64, 128, 256, 512, 1024)
#: Pixels of a side that the way up needs of each level of the way down.
_CROPS = (392, 200, 104, 56)


class UNet(nn.Module):
    """Down and up again; over four IPUs (`split`) the stages are those of `set_pipeline_stages`."""

    def __init__(self, split: Sequence[int] = ()) -> None:
        super().__init__()
        self.stages = len(split) + 1
        self.down = nn.ModuleList(_two(*pair) for pair in zip((1, *_WIDTHS), _WIDTHS, strict=False))
        pairs = list(zip(_WIDTHS[:0:-1], _WIDTHS[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, thin, 2, 2) for wide, thin in pairs)
        self.merged = nn.ModuleList(_two(wide, thin) for wide, thin in pairs)
        self.dropout = nn.Dropout(0.5)
        self.last = nn.Conv2d(_WIDTHS[0], CLASSES, 1)

    def _stage(self, number: int) -> AbstractContextManager[object]:
        ipu = min(number, self.stages - 1)
        return poptorch.Block(f"stage {ipu}", ipu_id=ipu)

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for level, block in enumerate(self.down):
            with self._stage(0 if level < 2 else 1):
                x = block(x)
                if level < len(_CROPS):
                    skipped.append(_cropped(x, _CROPS[level]))
                    x = F.max_pool2d(x, 2)
                else:
                    x = self.dropout(x)
        for level, (up, block) in enumerate(zip(self.up, self.merged, strict=True)):
            with self._stage((1, 2, 2, 3)[level]):
                x = F.relu(up(x))
            with self._stage((2, 2, 3, 3)[level]):
                x = block(torch.cat([x, skipped.pop()], 1))
        with self._stage(3):
            result: Tensor = self.last(x)
        return result


class UNetTrained(nn.Module):
    """The same with its loss: cross entropy and Dice, in single precision."""

    def __init__(self, split: Sequence[int]) -> None:
        super().__init__()
        self.model = UNet(split)

    def forward(self, images: Tensor, known: Tensor) -> Tensor:
        logits = self.model(images)
        with self.model._stage(3):
            share = logits.float().softmax(1)[:, 1]
            entropy = F.binary_cross_entropy(share, known)
            both = 2 * (share * known).sum() / (share.sum() + known.sum() + 1.0)
            return poptorch.identity_loss(entropy + 1 - both, "mean")


def _two(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3), nn.ReLU(), nn.Conv2d(after, after, 3), nn.ReLU()
    )


def _cropped(x: Tensor, side: int) -> Tensor:
    """The middle, as a copy: what surrounds it need not live on."""
    start = (x.shape[2] - side) // 2
    return x[:, :, start : start + side, start : start + side].clone()
