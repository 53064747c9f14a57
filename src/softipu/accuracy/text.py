"""Encoders for text as published IPU benchmarks run them, without weights: BERT and its kin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poptorch


@dataclass(frozen=True)
class Shape:
    """The size of an encoder."""

    hidden: int
    layers: int
    heads: int
    vocabulary: int = 30522
    positions: int = 512
    #: Width of embeddings that are projected up (ALBERT); 0: as wide as the rest.
    narrow: int = 0
    #: All layers are one and the same (ALBERT).
    shared: bool = False
    #: Attention also looks at relative positions (DeBERTa).
    relative: bool = False

    @property
    def inner(self) -> int:
        return 4 * self.hidden


BASE = Shape(768, 12, 12)
LARGE = Shape(1024, 24, 16)
ROBERTA = Shape(768, 12, 12, vocabulary=50265, positions=514)
ALBERT = Shape(768, 12, 12, vocabulary=30000, narrow=128, shared=True)
DEBERTA = Shape(768, 12, 12, vocabulary=50265, relative=True)


class Attention(nn.Module):
    """Queries, keys and values from one product, as Graphcore's models have it."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = nn.Dropout(dropout)
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.hidden)
        if shape.relative:
            self.position_key = nn.Linear(shape.hidden, shape.hidden, bias=False)
            self.position_query = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, x: Tensor, mask: Tensor, relative: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        heads = self.shape.heads
        q, k, v = (
            part.view(batch, length, heads, width // heads).transpose(1, 2)
            for part in self.qkv(x).split(width, 2)
        )
        scores = q @ k.transpose(2, 3)
        if relative is not None:
            scores = scores + self._by_position(q, k, relative)
        weights = (scores / math.sqrt(width // heads) + mask).softmax(-1)
        mixed = (self.dropout(weights) @ v).transpose(1, 2).reshape(batch, length, width)
        result: Tensor = self.out(mixed)
        return result

    def _by_position(self, q: Tensor, k: Tensor, relative: Tensor) -> Tensor:
        """Content to position and position to content: two products and two gathers."""
        batch, heads, length, size = q.shape
        keys, queries = (
            layer(relative).view(-1, heads, size).transpose(0, 1)
            for layer in (self.position_key, self.position_query)
        )
        index = torch.arange(length)
        between = (index[:, None] - index[None, :] + length).clamp(0, 2 * length - 1)
        between = between.expand(batch, heads, length, length)
        to_position = torch.gather(q @ keys.transpose(1, 2), 3, between)
        to_content = torch.gather(k @ queries.transpose(1, 2), 3, between).transpose(2, 3)
        return to_position + to_content


class Layer(nn.Module):
    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(shape, dropout)
        self.norm = nn.LayerNorm(shape.hidden)
        self.wide = nn.Linear(shape.hidden, shape.inner)
        self.thin = nn.Linear(shape.inner, shape.hidden)
        self.last_norm = nn.LayerNorm(shape.hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, relative: Tensor | None = None) -> Tensor:
        x = self.norm(x + self.dropout(self.attention(x, mask, relative)))
        result: Tensor = self.last_norm(x + self.dropout(self.thin(F.gelu(self.wide(x)))))
        return result


class Encoder(nn.Module):
    """Embeddings and layers; `split` says how many layers each IPU has, embeddings are on the
    first."""

    def __init__(self, shape: Shape, split: Sequence[int] = (), dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.split = tuple(split) or (shape.layers,)
        width = shape.narrow or shape.hidden
        self.words = nn.Embedding(shape.vocabulary, width)
        self.places = nn.Embedding(shape.positions, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, shape.hidden) if shape.narrow else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        count = 1 if shape.shared else shape.layers
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(count))
        if shape.relative:
            self.relative = nn.Embedding(2 * shape.positions, shape.hidden)

    def forward(self, words: Tensor, kinds: Tensor, mask: Tensor) -> Tensor:
        with poptorch.Block("stage 0", ipu_id=0):
            place = torch.arange(words.shape[1])
            x = self.words(words) + self.places(place) + self.kinds(kinds)
            x = self.up(self.dropout(self.norm(x)))
            bias = _bias(mask, x.dtype)
            relative = self.relative.weight[: 2 * words.shape[1]] if self.shape.relative else None
        number = 0
        for ipu, count in enumerate(self.split):
            if not count:
                continue
            with poptorch.Block(f"stage {ipu}", ipu_id=ipu):
                for _ in range(count):
                    layer = self.layers[0 if self.shape.shared else number]
                    x = layer(x, bias, relative)
                    number += 1
                    if number < self.shape.layers:  # nothing after the last is made again
                        x = poptorch.recomputationCheckpoint(x)
        result: Tensor = x
        return result


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: nothing, or so much that the softmax is 0. Packed sequences have a
    mask for each pair of places."""
    wide = mask[:, None, None, :] if mask.dim() == 2 else mask[:, None]
    bias: Tensor = (1.0 - wide.to(dtype)) * -10000.0
    return bias


class Answering(nn.Module):
    """SQuAD: where an answer begins and ends."""

    def __init__(self, shape: Shape, split: Sequence[int] = ()) -> None:
        super().__init__()
        self.encoder = Encoder(shape, split)
        self.ends = nn.Linear(shape.hidden, 2)

    def forward(self, words: Tensor, kinds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(words, kinds, mask)
        last = len(self.encoder.split) - 1
        with poptorch.Block(f"stage {last}", ipu_id=last):
            start, end = self.ends(x).unbind(-1)
        return start, end


class AnsweringTrained(nn.Module):
    """The same with its loss."""

    def __init__(self, shape: Shape, split: Sequence[int]) -> None:
        super().__init__()
        self.model = Answering(shape, split)
        self.model.encoder.dropout.p = 0.1
        for layer in self.model.encoder.layers:
            layer.dropout.p = layer.attention.dropout.p = 0.1  # type: ignore[union-attr]

    def forward(
        self, words: Tensor, kinds: Tensor, mask: Tensor, start: Tensor, end: Tensor
    ) -> Tensor:
        first, last = self.model(words, kinds, mask)
        stage = len(self.model.encoder.split) - 1
        with poptorch.Block(f"stage {stage}", ipu_id=stage):
            both = F.cross_entropy(first, start) + F.cross_entropy(last, end)
            return poptorch.identity_loss(both, "mean")


class Pretraining(nn.Module):
    """Masked words and next sentences; the head shares the embeddings, so it is on their IPU."""

    def __init__(self, shape: Shape, split: Sequence[int], serialised: int = 1) -> None:
        super().__init__()
        self.encoder = Encoder(shape, split, dropout=0.1)
        self.serialised = serialised
        self.transform = nn.Linear(shape.hidden, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        self.pool = nn.Linear(shape.hidden, shape.hidden)
        self.next = nn.Linear(shape.hidden, 2)

    def forward(
        self, words: Tensor, kinds: Tensor, mask: Tensor, where: Tensor, masked: Tensor,
        following: Tensor,
    ) -> Tensor:  # fmt: skip
        x = self.encoder(words, kinds, mask)
        with poptorch.Block("head", ipu_id=0):
            picked = x.gather(1, where[:, :, None].expand(-1, -1, x.shape[2]))
            hidden = self.norm(F.gelu(self.transform(picked)))
            logits = self._words(hidden) + self.bias
            word_loss = F.cross_entropy(logits.flatten(0, 1).float(), masked.flatten())
            first = torch.tanh(self.pool(x[:, 0]))
            sentence_loss = F.cross_entropy(self.next(first).float(), following)
            return poptorch.identity_loss(word_loss + sentence_loss, "mean")

    def _words(self, hidden: Tensor) -> Tensor:
        table = self.encoder.words.weight.t()
        if self.serialised == 1:
            return hidden @ table
        mode = poptorch.MatMulSerializationMode.OutputChannels
        logits: Tensor = poptorch.serializedMatMul(hidden, table, mode, self.serialised)
        return logits
