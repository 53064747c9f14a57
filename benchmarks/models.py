"""The networks that benchmarks train and run: small, common, and without downloads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MnistCnn(nn.Module):
    """Two convolutions and two linear layers, as in every first tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(1600, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class _Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a bottleneck of three."""

    def __init__(self, before: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        after = width * 4 if bottleneck else width
        if bottleneck:
            layers = [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)]
        else:
            layers = [(before, width, 3, stride), (width, width, 3, 1)]
        parts: list[nn.Module] = []
        for index, (a, b, kernel, step) in enumerate(layers):
            parts += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b)]
            if index < len(layers) - 1:
                parts.append(nn.ReLU(inplace=True))
        self.body = nn.Sequential(*parts)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and before == after
            else nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-18 or ResNet-50 for 224 x 224 images."""

    def __init__(self, depths: tuple[int, ...], bottleneck: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        width_before = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(_Block(width_before, width, stride, bottleneck))
                width_before = width * 4 if bottleneck else width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(width_before, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def resnet18() -> ResNet:
    return ResNet((2, 2, 2, 2), bottleneck=False)


def resnet50() -> ResNet:
    return ResNet((3, 4, 6, 3), bottleneck=True)


class Transformer(nn.Module):
    """An encoder with a language-model head, from 4 small layers to BERT-base."""

    def __init__(self, layers: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.words(x) + self.places))


class WithLoss(nn.Module):
    """A model that returns its loss too, as PopTorch trains it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        out = self.model(x)
        return out, F.cross_entropy(out.flatten(0, -2), target.flatten())
