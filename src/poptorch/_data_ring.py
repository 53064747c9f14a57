"""The shared memory between a program and its data worker, and the records they exchange about it.

Memory holds a fixed number of slots, each with room for one batch. Who fills and who empties them
is decided in `_data_worker` and `_async_data`.
"""

from __future__ import annotations

import enum
import mmap
import os
import select
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import torch

_ALIGNMENT = 64
_RECORD = struct.Struct("<iqii")


@dataclass(frozen=True)
class Field:
    """Where one tensor of a batch lies in a slot."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int

    @property
    def size(self) -> int:
        return self.dtype.itemsize * int(torch.Size(self.shape).numel())


@dataclass(frozen=True)
class Layout:
    """How slots divide the memory."""

    fields: tuple[Field, ...]
    slots: int
    slot_size: int

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor], slots: int, rows: int | None = None) -> Layout:
        """Room for batches like this one; with `rows`, that many along the first dimension."""
        fields = []
        end = 0
        for tensor in tensors:
            shape = tuple(tensor.shape) if rows is None else (rows, *tensor.shape[1:])
            field = Field(shape, tensor.dtype, end)
            fields.append(field)
            end += -(-field.size // _ALIGNMENT) * _ALIGNMENT
        return cls(tuple(fields), slots, end)


class Memory:
    """Shared memory without a name: nobody can leave it behind, whoever dies and however.

    The program makes it, its worker gives it a size once the first batch is known, both map it.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor: int | None = (
            os.memfd_create("poptorch-data") if descriptor is None else descriptor
        )

    def __reduce__(self) -> Any:
        assert self._descriptor is not None
        return _received_memory, (DupFd(self._descriptor),)

    def allocate(self, layout: Layout) -> list[list[torch.Tensor]]:
        """Reserve the memory of all slots, then map it."""
        assert self._descriptor is not None
        # Reserved now: memory that runs out later would be a bus error in the middle of a copy.
        os.posix_fallocate(self._descriptor, 0, max(1, layout.slots * layout.slot_size))
        return self.map(layout)

    def map(self, layout: Layout) -> list[list[torch.Tensor]]:
        """The tensors of each slot. They keep the memory alive; the descriptor is closed."""
        assert self._descriptor is not None
        content = mmap.mmap(self._descriptor, max(1, layout.slots * layout.slot_size))
        self.close()
        return [
            [_tensor_at(content, slot * layout.slot_size, field) for field in layout.fields]
            for slot in range(layout.slots)
        ]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _received_memory(descriptor: Any) -> Memory:
    return Memory(descriptor.detach())


def _tensor_at(content: mmap.mmap, start: int, field: Field) -> torch.Tensor:
    if field.size == 0:
        return torch.empty(field.shape, dtype=field.dtype)
    raw = torch.frombuffer(
        content, dtype=torch.uint8, count=field.size, offset=start + field.offset
    )
    return raw.view(field.dtype).view(field.shape)


class Kind(enum.IntEnum):
    """What a record says: the first four are the program's orders, the rest the worker's news."""

    START = 0  #: the program now reads this epoch
    RESET = 1  #: drop what you have, all slots are yours, load this epoch
    FREE = 2  #: the program is done with this slot
    STOP = 3
    READY = 4  #: this slot holds a batch (of `rows` rows, or of full size where it is -1)
    END = 5  #: this epoch is complete
    FAILED = 6  #: the worker ends; the reason is in its report


class Record(NamedTuple):
    kind: int
    epoch: int = 0
    slot: int = 0
    rows: int = -1


class Sender:
    """Writes records into a pipe. Each is one atomic write, so that an interrupt can't split it."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe

    def send(self, record: Record) -> None:
        os.write(self._pipe.fileno(), _RECORD.pack(*record))

    def close(self) -> None:
        self._pipe.close()


class Receiver:
    """Reads records from a pipe."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe
        self._poll = select.poll()
        self._poll.register(pipe.fileno(), select.POLLIN)

    def ready(self) -> bool:
        """Whether `receive` would return at once."""
        return bool(self._poll.poll(0))

    def receive(self) -> list[Record]:
        """What has been sent, at least one record; an empty list once all senders are gone."""
        data = os.read(self._pipe.fileno(), 64 * _RECORD.size)
        return [Record(*fields) for fields in _RECORD.iter_unpack(data)]

    def fileno(self) -> int:
        return self._pipe.fileno()

    def close(self) -> None:
        self._pipe.close()
