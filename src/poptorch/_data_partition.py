"""Divides a map-style data set between the processes of a distributed run.

Every process gets one contiguous part, of its own and as long as the others', of the data set or
of a permutation of it that all processes compute alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ._arg_parsers import flatten, rebuild
from ._errors import createPoptorchError


@dataclass(frozen=True)
class Share:
    """The part of one process: elements `offset` to `offset + length` of `total`.

    `leftovers` is how far the parts move in every other epoch of a shuffled run, so that the
    elements that did not fill a batch are used as well.
    """

    total: int
    offset: int
    length: int
    leftovers: int

    @classmethod
    def of(cls, total: int, step: int, drop_last: bool, process: int, processes: int) -> Share:
        """The share of `process`, for steps of `step` elements per process."""
        if drop_last:
            length = step * (total // (step * processes))
            if length == 0:
                raise createPoptorchError(
                    f"The data set has {total} elements, but one step of all processes takes "
                    f"{step * processes} ({processes} processes, combined batch size {step}): use "
                    "a larger data set, fewer processes or a smaller batch, or drop_last=False."
                )
            return cls(total, process * length, length, total % length)
        base, more = divmod(total, processes)
        offset = process * base + min(process, more)
        return cls(total, offset, base + (process < more), 0)


class GlobalIndex(int):
    """An index into the whole data set, where a plain one counts from the start of a share."""


class Partition(torch.utils.data.Dataset[Any]):
    """One process's share of a data set, as a data set."""

    def __init__(self, dataset: Any, share: Share) -> None:
        self._dataset = dataset
        self.share = share

    def __len__(self) -> int:
        return self.share.length

    def __getitem__(self, index: int) -> Any:
        return self._dataset[self._global(index)]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        together = getattr(self._dataset, "__getitems__", None)
        wanted = [self._global(index) for index in indices]
        if callable(together):
            return list(together(wanted))
        return [self._dataset[index] for index in wanted]

    def _global(self, index: int) -> int:
        if isinstance(index, GlobalIndex):
            return int(index)
        if not 0 <= index < self.share.length:
            raise IndexError(f"index {index} in a share of {self.share.length} elements")
        return self.share.offset + index


class SharedShuffle(torch.utils.data.Sampler[int]):
    """Shuffles the whole data set for every epoch, alike in all processes; yields one share."""

    def __init__(self, share: Share, seed: int) -> None:
        self._share = share
        self._generator = torch.Generator()
        self._generator.manual_seed(seed)
        self._moved = False

    def __len__(self) -> int:
        return self._share.length

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self._share.total, generator=self._generator)
        self._moved = not self._moved
        start = self._share.offset + (self._share.leftovers if self._moved else 0)
        return map(GlobalIndex, order[start : start + self._share.length].tolist())


def combined(batches: Iterable[Any], count: int, drop_last: bool) -> Iterator[Any]:
    """Join each `count` batches into one, along the first dimension of their tensors."""
    collected: list[list[torch.Tensor]] = []
    structure: Any = None
    for structure in batches:
        collected.append(flatten(structure))
        if len(collected) == count:
            yield _joined(structure, collected)
            collected = []
    if collected and not drop_last:
        yield _joined(structure, collected)


def _joined(structure: Any, batches: list[list[torch.Tensor]]) -> Any:
    return rebuild(structure, map(torch.cat, zip(*batches, strict=True)))
