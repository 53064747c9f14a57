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
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, memory: Tensor | None, places: Tensor | None) -> Tensor:
        x = self.norm(x)
        memory = x if memory is None else memory
        q, k = self._heads(self.query(x)), self._heads(self.key(memory))
        v = self._heads(self.value(memory))
        scores = q @ k.transpose(2, 3)
        if self.position is not None and places is not None:
            scores = scores + q @ self._heads(self.position(places)).transpose(2, 3)
        weights = (scores / math.sqrt(WIDTH // HEADS)).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
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

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        x = x + self.attention(x, None, places)
        x = x + self.convolution(x)
        result: Tensor = self.norm(x + 0.5 * self.second(x))
        return result


class DecoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = Attending(False), Attending(False)
        self.forwards = Forward(nn.ReLU())

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = x + self.own(x, None, None)
        x = x + self.other(x, memory, None)
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

    def forward(self, sound: Tensor, words: Tensor, following: Tensor) -> Tensor:
        with poptorch.Block("stage 0", ipu_id=0):
            x = self.narrow(sound[:, None])
            x = self.into(x.transpose(1, 2).flatten(2))
            places = torch.zeros(1, x.shape[1], WIDTH, dtype=x.dtype)
            x = self._run(x, places, 0, self.begins[0])
        ends = (*self.begins[1:], len(self.blocks))
        for ipu, (start, end) in enumerate(zip(self.begins, ends, strict=True), start=1):
            with poptorch.Block(f"stage {ipu}", ipu_id=ipu):
                x = self._run(x, places, start, end)
        with poptorch.Block(f"stage {len(self.begins)}", ipu_id=len(self.begins)):
            memory = self.norm(x)
            sounds = self.sounds(memory).float().log_softmax(-1)
            y = self.words(words)
            for block in self.decoder:
                y = block(y, memory)
            logits = self.out(self.decoder_norm(y))
            loss = F.cross_entropy(logits.flatten(0, 1).float(), following.flatten())
            return poptorch.identity_loss(0.7 * loss + 0.3 * self._ctc(sounds, words), "mean")

    def _run(self, x: Tensor, places: Tensor, start: int, end: int) -> Tensor:
        for block in self.blocks[start:end]:
            x = poptorch.recomputationCheckpoint(block(x, places))
        return x

    def _ctc(self, sounds: Tensor, words: Tensor) -> Tensor:
        batch, frames, _ = sounds.shape
        lengths = torch.full((batch,), frames, dtype=torch.int32)
        targets = torch.full((batch,), words.shape[1], dtype=torch.int32)
        return F.ctc_loss(sounds.transpose(0, 1), words, lengths, targets)
