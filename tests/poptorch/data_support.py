"""Data sets that worker processes can import, and eyes for processes that should be gone."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Count(Dataset[torch.Tensor]):
    """Element i is full of i."""

    def __init__(self, length: int, shape: tuple[int, ...] = (2,), dtype: Any = None) -> None:
        self.length = length
        self.shape = shape
        self.dtype = dtype or torch.float32

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.length:
            raise IndexError(index)
        return torch.full(self.shape, index, dtype=self.dtype)


class Labelled(Count):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), torch.tensor([index])


class LabelledDict(Count):
    def __getitem__(self, index: int) -> Any:
        return {"image": super().__getitem__(index), "label": torch.tensor([index])}


class Noise(Count):
    """Elements that depend on generators of random numbers."""

    def __getitem__(self, index: int) -> torch.Tensor:
        super().__getitem__(index)
        return torch.cat([torch.rand(1), torch.tensor([random.random()])])


class Stream(IterableDataset[torch.Tensor]):
    """The same numbers as a stream, divided between the workers of a DataLoader."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.length, step):
            yield torch.full((2,), float(index))


class FailsAt(Count):
    def __init__(self, length: int, bad: int) -> None:
        super().__init__(length)
        self.bad = bad

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.bad:
            raise ValueError(f"element {index} is spoilt")
        return super().__getitem__(index)


class StopsAt(Count):
    """Sleeps for ever at one element."""

    def __init__(self, length: int, at: int) -> None:
        super().__init__(length)
        self.at = at

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            time.sleep(600)
        return super().__getitem__(index)


class Growing(Count):
    """Elements of different shapes."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(index + 1)


class MarksItsEnd:
    """An iterable that gets stuck, and writes a file when its iterator is closed in order."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __iter__(self) -> Any:
        try:
            yield torch.zeros(1)
            time.sleep(600)
        finally:
            self.mark.write_text("closed")


class Pair:
    """A batch type of a user, with a parser of its own."""

    def __init__(self, first: Any, second: Any, name: str = "") -> None:
        self.first = first
        self.second = second
        self.name = name


class Pairs(Count):
    def __getitem__(self, index: int) -> Any:
        return Pair(super().__getitem__(index), torch.tensor([index]), "named")


def numbers(loader: Any) -> list[list[int]]:
    """The first number of each row of each batch, copied out of the ring."""
    return [batch.reshape(len(batch), -1)[:, 0].int().tolist() for batch in loader]


def children(pid: int) -> set[int]:
    """All living descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_bytes()
            except OSError:
                continue
            fields = text[text.rindex(b")") + 2 :].split()
            if fields[0] not in (b"Z", b"X"):
                parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    def lives(pid: int) -> bool:
        try:
            text = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return False
        return text[text.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X")

    return {pid for pid in pids if lives(pid)}


def gone_within(pids: set[int], seconds: float) -> bool:
    """Whether these processes end in that time."""
    deadline = time.monotonic() + seconds
    while alive(pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def workers(expected: int) -> set[int]:
    """This process's descendants, once there are as many as expected."""
    deadline = time.monotonic() + 10
    while len(found := children(os.getpid())) < expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
