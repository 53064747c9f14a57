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
    #: Queries, keys and values are products of their own (`split_qkv`).
    apart: bool = False

    @property
    def inner(self) -> int:
        return 4 * self.hidden


BASE = Shape(768, 12, 12)
LARGE = Shape(1024, 24, 16)
ROBERTA = Shape(768, 12, 12, vocabulary=50265, positions=514)
ALBERT = Shape(768, 12, 12, vocabulary=30000, narrow=128, shared=True)
DEBERTA = Shape(768, 12, 12, vocabulary=50265, relative=True)


class Attention(nn.Module):
    """Queries, keys and values from one product or from three (`shape.apart`)."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = nn.Dropout(dropout)
        widths = (shape.hidden,) * 3 if shape.apart else (3 * shape.hidden,)
        self.qkv = nn.ModuleList(nn.Linear(shape.hidden, width) for width in widths)
        self.out = nn.Linear(shape.hidden, shape.hidden)
        if shape.relative:
            self.position_key = nn.Linear(shape.hidden, shape.hidden, bias=False)
            self.position_query = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, x: Tensor, mask: Tensor | None, relative: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        heads = self.shape.heads
        made = [layer(x) for layer in self.qkv]
        q, k, v = (
            part.view(batch, length, heads, width // heads).transpose(1, 2)
            for part in (made if self.shape.apart else made[0].split(width, 2))
        )
        scores = q @ k.transpose(2, 3)
        if relative is not None:
            scores = scores + self._by_position(q, k, relative)
        scores = scores / math.sqrt(width // heads)
        weights = (scores if mask is None else scores + mask).softmax(-1)
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


class Attending(nn.Module):
    """The first half of a layer."""

    def __init__(self, shape: Shape, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.attention = Attention(shape, attention_dropout)
        self.norm = nn.LayerNorm(shape.hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, relative: Tensor | None = None) -> Tensor:
        result: Tensor = self.norm(x + self.dropout(self.attention(x, mask, relative)))
        return result


class Feeding(nn.Module):
    """The second half."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.wide = nn.Linear(shape.hidden, shape.inner)
        self.thin = nn.Linear(shape.inner, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.norm(x + self.dropout(self.thin(F.gelu(self.wide(x)))))
        return result


#: Which IPU has how many halves of layers, in the order of the layers.
Halves = Sequence[tuple[int, int]]


def of_layers(split: Sequence[int]) -> Halves:
    """Whole layers on one IPU after the other."""
    return tuple((ipu, 2 * count) for ipu, count in enumerate(split))


class Encoder(nn.Module):
    """Embeddings and layers; embeddings are on the first IPU.

    Each IPU makes what masks scores itself, unless there is `one_mask`, made on the first.
    """

    def __init__(
        self, shape: Shape, halves: Halves = (), dropout: float = 0.0,
        attention_dropout: float = 0.0, one_mask: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.shape = shape
        self.one_mask = one_mask
        self.halves = tuple(halves) or of_layers((shape.layers,))
        width = shape.narrow or shape.hidden
        self.words = nn.Embedding(shape.vocabulary, width)
        self.places = nn.Embedding(shape.positions, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, shape.hidden) if shape.narrow else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        count = 1 if shape.shared else shape.layers
        self.layers = nn.ModuleList()
        for _ in range(count):
            self.layers.append(Attending(shape, dropout, attention_dropout))
            self.layers.append(Feeding(shape, dropout))
        if shape.relative:
            self.relative = nn.Embedding(2 * shape.positions, shape.hidden)

    def forward(self, words: Tensor, kinds: Tensor, mask: Tensor) -> Tensor:
        with poptorch.Block("stage 0", ipu_id=0):
            place = torch.arange(words.shape[1])
            x: Tensor = self.words(words) + self.places(place) + self.kinds(kinds)
            x = self.up(self.dropout(self.norm(x)))
            bias = _bias(mask, x.dtype)
            relative = self.relative.weight[: 2 * words.shape[1]] if self.shape.relative else None
        done = 0
        for ipu, count in self.halves:
            if not count:
                continue
            # Layers that come back to the first IPU are in one stage with the head.
            with poptorch.Block("head" if done and not ipu else f"stage {ipu}", ipu_id=ipu):
                if done and not self.one_mask:
                    bias = _bias(mask, x.dtype)
                for _ in range(count):
                    x = self._half(done, x, bias, relative)
                    done += 1
        return x

    def _half(self, number: int, x: Tensor, bias: Tensor, relative: Tensor | None) -> Tensor:
        half = self.layers[number % len(self.layers)]
        if number % 2 == 0:
            attended: Tensor = half(x, bias, relative)
            return attended
        result: Tensor = half(x)
        # Nothing after the last layer is made again.
        last = number + 1 == 2 * self.shape.layers
        return result if last else poptorch.recomputationCheckpoint(result)


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: nothing, or so much that the softmax is 0. In packs the mask has the
    number of each word's sequence, and words see those of their own."""
    wide = mask[:, None, None, :]
    if not mask.dtype.is_floating_point:
        wide = wide == mask[:, None, :, None]
    bias: Tensor = (1.0 - wide.to(dtype)) * -10000.0
    return bias


class Answering(nn.Module):
    """SQuAD: where an answer begins and ends."""

    def __init__(
        self, shape: Shape, halves: Halves = (), dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder = Encoder(shape, halves, dropout, attention_dropout)
        self.ends = nn.Linear(shape.hidden, 2)

    def forward(self, words: Tensor, kinds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(words, kinds, mask)
        last, _ = self.encoder.halves[-1]
        with poptorch.Block(f"stage {last}", ipu_id=last):
            start, end = self.ends(x).unbind(-1)
        return start, end


class AnsweringTrained(nn.Module):
    """The same with its loss."""

    def __init__(self, shape: Shape, halves: Halves) -> None:
        super().__init__()
        self.model = Answering(shape, halves, dropout=0.1, attention_dropout=0.1)

    def forward(
        self, words: Tensor, kinds: Tensor, mask: Tensor, start: Tensor, end: Tensor
    ) -> Tensor:
        first, last = self.model(words, kinds, mask)
        stage, _ = self.model.encoder.halves[-1]
        with poptorch.Block(f"stage {stage}", ipu_id=stage):
            both = F.cross_entropy(first, start) + F.cross_entropy(last, end)
            return poptorch.identity_loss(both, "mean")


class Pretraining(nn.Module):
    """Masked words and next sentences; the head shares the embeddings, so it is on their IPU."""

    def __init__(
        self, shape: Shape, halves: Halves, serialised: int = 1, attention_dropout: float = 0.0,
        one_mask: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder = Encoder(shape, halves, 0.1, attention_dropout, one_mask)
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
