"""A Conformer for speech as Graphcore's example trains it, without weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poptorch

WIDTH, HEADS, INNER, KERNEL = 256, 4, 2048, 15
FRAMES, BANDS, WORDS, TARGET = 1220, 80, 4233, 48


class Forward(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.thin = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.activation, self.dropout = activation, nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.wide(self.norm(x))))
        result: Tensor = self.dropout(self.thin(inner))
        return result


class Attending(nn.Module):
    """Attention with, for the encoder, a product with positions as well."""

    def __init__(self, relative: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.position = nn.Linear(WIDTH, WIDTH, bias=False) if relative else None
        if relative:
            self.content_bias = nn.Parameter(torch.zeros(HEADS, 1, WIDTH // HEADS))
            self.position_bias = nn.Parameter(torch.zeros(HEADS, 1, WIDTH // HEADS))
        self.dropout = nn.Dropout(0.1)

    def forward(
        self, x: Tensor, memory: Tensor | None, places: Tensor | None, mask: Tensor
    ) -> Tensor:
        x = self.norm(x)
        memory = x if memory is None else memory
        q, k = self._heads(self.query(x)), self._heads(self.key(memory))
        v = self._heads(self.value(memory))
        if self.position is not None and places is not None:
            at = self._heads(self.position(places)).transpose(2, 3)
            scores = (q + self.content_bias) @ k.transpose(2, 3) + (q + self.position_bias) @ at
        else:
            scores = q @ k.transpose(2, 3)
        # What is masked counts little before the softmax, and nothing after it.
        scores = scores / math.sqrt(WIDTH // HEADS) * mask + (mask - 1) * 1e3
        mixed = ((scores.softmax(-1) * mask) @ v).transpose(1, 2).flatten(2)
        result: Tensor = self.dropout(self.out(mixed))
        return result

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)


class Convolving(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.deep = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.middle = nn.LayerNorm(WIDTH)
        self.thin, self.dropout = nn.Conv1d(WIDTH, WIDTH, 1), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.glu(self.wide(self.norm(x).transpose(1, 2)), 1)
        x = F.silu(self.middle(self.deep(x).transpose(1, 2))).transpose(1, 2)
        result: Tensor = self.dropout(self.thin(x).transpose(1, 2))
        return result


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Forward(nn.SiLU()), Forward(nn.SiLU())
        self.attention, self.convolution = Attending(True), Convolving()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        x = x.clone()  # `remap_tensor`: laid out anew where a block begins and ends
        x = x + 0.5 * self.first(x)
        x = x + self.attention(x, None, places, mask)
        x = x + self.convolution(x)
        result: Tensor = self.norm(x + 0.5 * self.second(x))
        return result.clone()


class DecoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = Attending(False), Attending(False)
        self.forwards = Forward(nn.ReLU())

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        x = x + self.own(x, None, None, mask)
        x = x + self.other(x, memory, None, memory_mask)
        result: Tensor = x + self.forwards(x)
        return result


class Conformer(nn.Module):
    """Sound to words: 12 blocks over 4 IPUs, a decoder of 6 on the last, CTC beside it."""

    def __init__(self, begins: Sequence[int] = (2, 6, 11)) -> None:
        super().__init__()
        self.begins = tuple(begins)
        self.narrow = nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, 2), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, 2), nn.ReLU()
        )
        self.into = nn.Linear(WIDTH * 19, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(12))
        self.norm = nn.LayerNorm(WIDTH)
        self.sounds = nn.Linear(WIDTH, WORDS)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.decoder = nn.ModuleList(DecoderBlock() for _ in range(6))
        self.decoder_norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(
        self, sound: Tensor, lengths: Tensor, words: Tensor, following: Tensor, counts: Tensor
    ) -> Tensor:
        with poptorch.Block("stage 0", ipu_id=0):
            x = self.narrow(sound[:, None])
            x = self.into(x.transpose(1, 2).flatten(2))
            places = torch.zeros(1, x.shape[1], WIDTH, dtype=x.dtype)
            heard = _before(lengths, x.shape[1], x.dtype)[:, None, None]
            x = self._run(x, places, heard, 0, self.begins[0])
        ends = (*self.begins[1:], len(self.blocks))
        for ipu, (start, end) in enumerate(zip(self.begins, ends, strict=True), start=1):
            with poptorch.Block(f"stage {ipu}", ipu_id=ipu):
                x = self._run(x, places, heard, start, end)
        with poptorch.Block(f"stage {len(self.begins)}", ipu_id=len(self.begins)):
            memory = self.norm(x)
            sounds = self.sounds(memory).log_softmax(-1)
            said = _before(counts, words.shape[1], x.dtype)
            earlier = torch.ones(words.shape[1], words.shape[1], dtype=x.dtype).tril()
            y = self.words(words)
            for block in self.decoder:
                y = block(y, memory, said[:, None, None] * earlier, heard)
            loss = self._smoothed(self.out(self.decoder_norm(y)), following, said)
            both = 0.7 * loss + 0.3 * _ctc(sounds, following, lengths, counts)
            return poptorch.identity_loss(both, "mean")

    def _run(self, x: Tensor, places: Tensor, mask: Tensor, start: int, end: int) -> Tensor:
        for block in self.blocks[start:end]:
            x = poptorch.recomputationCheckpoint(block(x, places, mask))
        return x

    def _smoothed(self, logits: Tensor, words: Tensor, said: Tensor) -> Tensor:
        """How far the logits are from the words, a tenth of which is spread over all others."""
        true = F.one_hot(words, WORDS).to(logits.dtype) * 0.9 + 0.1 / (WORDS - 1)
        apart = true * (true.log() - logits.log_softmax(-1)) * said[:, :, None]
        return apart.sum() / len(words)


def _before(lengths: Tensor, most: int, dtype: torch.dtype) -> Tensor:
    return (torch.arange(most)[None] < lengths[:, None]).to(dtype)


def _ctc(sounds: Tensor, words: Tensor, lengths: Tensor, counts: Tensor) -> Tensor:
    """Only the classes of a sequence's own labels, and the blank, go through the loss: what
    `enableReducedClassesInLabel` does."""
    batch, frames, _ = sounds.shape
    classes = torch.cat((torch.zeros_like(words[:, :1]), words), 1)
    index = classes[:, None].expand(batch, frames, classes.shape[1])
    own = sounds.gather(2, index).transpose(0, 1)
    labels = torch.arange(1, classes.shape[1])[None].expand(batch, -1)
    return F.ctc_loss(own, labels, lengths, counts, reduction="sum") / batch
