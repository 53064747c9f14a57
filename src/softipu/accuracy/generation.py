"""GPT-2 as graphcore/examples trains it (nlp/gpt2/pytorch), without weights: the small one."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poptorch

from .text import BASE, Attention

WORDS = 1024
_SHAPE = replace(BASE, vocabulary=50272, positions=WORDS)
#: Words whose loss is made at a time (`serialized-seq-len`).
_SLICE = 128
_DROPOUT = 0.1


class Layer(nn.Module):
    """Norms come first; words see none that follow."""

    def __init__(self) -> None:
        super().__init__()
        width = _SHAPE.hidden
        self.norm, self.attention = nn.LayerNorm(width), Attention(_SHAPE, _DROPOUT)
        self.last_norm = nn.LayerNorm(width)
        self.wide, self.thin = nn.Linear(width, _SHAPE.inner), nn.Linear(_SHAPE.inner, width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.earlier: Tensor
        self.register_buffer("earlier", torch.ones(1, 1, WORDS, WORDS))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm(x), (1.0 - self.earlier) * -10000.0))
        result: Tensor = x + self.dropout(self.thin(F.gelu(self.wide(self.last_norm(x)))))
        return result


class Generating(nn.Module):
    """With its loss; the head shares the embeddings, so it is on their IPU, with no layer."""

    def __init__(self, split: tuple[int, ...], serialised: int) -> None:
        super().__init__()
        self.split, self.serialised = split, serialised
        self.words = nn.Embedding(_SHAPE.vocabulary, _SHAPE.hidden)
        self.places = nn.Embedding(WORDS, _SHAPE.hidden)
        self.dropout = nn.Dropout(_DROPOUT)
        self.layers = nn.ModuleList(Layer() for _ in range(sum(split)))
        self.norm = nn.LayerNorm(_SHAPE.hidden)

    def forward(self, words: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with poptorch.Block("stage 0", ipu_id=0):
            x: Tensor = self.words(words)
        layers = iter(self.layers)
        for ipu, count in enumerate(self.split):
            if not count:
                continue
            with poptorch.Block(f"stage {ipu}", ipu_id=ipu):
                if ipu == 1:
                    x = self.dropout(x + self.places(torch.arange(WORDS)))
                for _ in range(count):
                    x = poptorch.recomputationCheckpoint(next(layers)(x))
                if ipu == len(self.split) - 1:
                    x = self.norm(x)
        with poptorch.Block("head", ipu_id=0):
            return self._loss(x, labels.flatten())

    def _loss(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        mode = poptorch.MatMulSerializationMode.OutputChannels
        logits = poptorch.serializedMatMul(x, self.words.weight.t(), mode, self.serialised)
        logits = logits.view(-1, logits.shape[-1])
        loss, right = torch.zeros(()), torch.zeros(())
        for start in range(0, len(labels), _SLICE):
            part, wanted = (whole[start : start + _SLICE] for whole in (logits, labels))
            loss = loss + F.cross_entropy(part, wanted, reduction="sum").float()
            right = right + (part.argmax(-1) == wanted).float().sum()
        return poptorch.identity_loss(loss / len(labels), "none"), right / len(labels)
