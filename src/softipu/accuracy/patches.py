"""The vision transformer of graphcore/examples (vision/vit/pytorch), without weights: ViT-B/16."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poptorch

from .text import BASE, Attention

#: Queries, keys and values are products of their own here.
_SHAPE = replace(BASE, apart=True)

SIDE = 224
_PATCH, _CLASSES = 16, 1000
_LAYERS_PER_IPU = 3
#: Layers that also keep what is between their halves (`recompute_mid_layers`).
_MIDDLES = (1, 4, 7, 10)
_DROPOUT = 0.1


class Layer(nn.Module):
    """Norms come first here, unlike in BERT."""

    def __init__(self, attention_dropout: float, middle: bool) -> None:
        super().__init__()
        width = BASE.hidden
        self.norm, self.attention = nn.LayerNorm(width), Attention(_SHAPE, attention_dropout)
        self.last_norm = nn.LayerNorm(width)
        self.wide, self.thin = nn.Linear(width, BASE.inner), nn.Linear(BASE.inner, width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm(x), None))
        if self.middle:
            x = poptorch.recomputationCheckpoint(x)
        inner = self.dropout(F.gelu(self.wide(self.last_norm(x))))
        result: Tensor = x + self.dropout(self.thin(inner))
        return result


class VisionTransformer(nn.Module):
    """With its loss. Pretraining mixes images (`mixup`) and has one more layer before the head."""

    def __init__(self, pretraining: bool) -> None:
        super().__init__()
        width, places = BASE.hidden, (SIDE // _PATCH) ** 2 + 1
        self.patches = nn.Conv2d(3, width, _PATCH, _PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, places, width))
        self.dropout = nn.Dropout(_DROPOUT)
        attention_dropout = 0.1 if pretraining else 0.0
        self.layers = nn.ModuleList(
            Layer(attention_dropout, number in _MIDDLES) for number in range(BASE.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.represent = nn.Linear(width, width) if pretraining else nn.Identity()
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, images: Tensor, labels: Tensor, share: Tensor | None = None) -> Tensor:
        with poptorch.Block("stage 0", ipu_id=0):
            x = images.to(self.first.dtype)
            if share is not None:
                x = share * x + (1.0 - share) * torch.roll(x, 1, 0)
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
            x = self.dropout(x)
        for number, layer in enumerate(self.layers):
            ipu = number // _LAYERS_PER_IPU
            with poptorch.Block(f"stage {ipu}", ipu_id=ipu):
                x = poptorch.recomputationCheckpoint(layer(x))
        last = (BASE.layers - 1) // _LAYERS_PER_IPU
        with poptorch.Block(f"stage {last}", ipu_id=last):
            x = self.represent(self.norm(x)[:, 0])
            logits = self.head(torch.tanh(x) if share is not None else x)
            loss = F.cross_entropy(logits.float(), labels)
            if share is not None:
                loss = loss + F.cross_entropy(logits.float(), torch.roll(labels, 1, 0))
            return poptorch.identity_loss(loss, "mean")
