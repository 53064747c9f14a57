"""The process that loads a data set ahead of the program and fills the slots of a shared ring.

It never decides when to stop: it obeys the records of its parent, and ends when that goes away.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from softipu.devices.process import Identity

from ._data_form import Form
from ._data_process import Randomness, bind_workers, leave, settle_in
from ._data_ring import Kind, Layout, Memory, Receiver, Record, Sender
from ._errors import createPoptorchError
from ._logging import logger

_END = object()


@dataclass(frozen=True)
class Task:
    """What a worker is to do."""

    slots: int
    rows: int | None  #: rows of each batch where the worker puts batches together itself
    drop_last: bool  #: whether it then drops the incomplete one at the end
    load_indefinitely: bool
    early_preload: bool
    one_thread: bool  #: after a fork, OpenMP's threads are gone: waiting for them never ends
    randomness: Randomness
    parent: Identity
    start_method: str | None  #: of processes in the parent, where it has chosen one


@dataclass(frozen=True)
class Lines:
    """A worker's ends of the pipes, and the memory."""

    commands: Connection[Any, Any]
    events: Connection[Any, Any]
    report: Connection[Any, Any]
    memory: Memory


class _Reset(Exception):
    """The parent wants another epoch; what is being loaded is of no use any more."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch


def main(task: Task, parcel: Any, lines: Lines, parents_ends: Sequence[Any] = ()) -> None:
    """Load until told to stop. A failure of the data set is reported and printed."""
    settle_in(task.parent, task.start_method)
    for inherited in parents_ends:
        inherited.close()
    logger.debug("AsynchronousDataAccessor worker process: %d", os.getpid())
    try:
        if task.one_thread:
            torch.set_num_threads(1)
        dataset = parcel.open()
        bind_workers(dataset)
        task.randomness.adopt()
        _Producer(task, dataset, lines).run()
    except Exception:  # noqa: BLE001 - whatever a data set raises is the parent's to raise
        text = traceback.format_exc()
        # Also printed: the program may swallow the exception, or end before it reads it.
        print(text, file=sys.stderr, flush=True)
        with contextlib.suppress(BrokenPipeError):  # It has ended already.
            lines.report.send_bytes(pickle.dumps(text))
            Sender(lines.events).send(Record(Kind.FAILED))
        raise SystemExit(1) from None


class _Producer:
    """Takes batches from the data set and puts them into free slots."""

    def __init__(self, task: Task, dataset: Any, lines: Lines) -> None:
        self._task = task
        self._dataset = dataset
        self._lines = lines
        self._commands = Receiver(lines.commands)
        self._events = Sender(lines.events)
        self._form: Form | None = None
        self._layout: Layout | None = None
        self._ring: list[list[torch.Tensor]] = []
        self._free = deque(range(task.slots))
        self._started = -1  #: the epoch that the program reads
        self._filling: int | None = None  #: the slot that is being put together
        self._filled = 0  #: and how many rows it has

    def run(self) -> None:
        epoch = 0
        while True:
            try:
                self._load(epoch)
                epoch += 1
            except _Reset as reset:
                epoch = reset.epoch
                self._free = deque(range(self._task.slots))
                self._filling = None

    def _load(self, epoch: int) -> None:
        """Load one epoch."""
        if epoch > 0:
            self._wait_until_wanted(epoch)
        source = iter(self._dataset)
        try:
            while (batch := next(source, _END)) is not _END:
                self._obey()
                self._store(epoch, self._tensors(batch))
                # The very first batch tells the layout; more is loaded when it is wanted.
                self._wait_until_wanted(epoch)
        finally:
            # Now, not when the traceback goes: this ends a DataLoader's workers.
            del source
        if self._form is None:
            raise createPoptorchError(
                "The Dataset is empty",
                cause="It gave no batch: it has no elements, or fewer than one combined batch, "
                "and drop_last leaves those out.",
                remedy="Give it more elements, choose a smaller batch size, or drop_last=False.",
            )
        self._finish(epoch)

    def _tensors(self, batch: Any) -> list[torch.Tensor]:
        if self._form is None:
            self._set_up(batch)
        assert self._form is not None
        assert self._layout is not None
        tensors = self._form.tensors(batch)
        first = 0 if self._task.rows is None else 1
        expected = [field.shape[first:] for field in self._layout.fields]
        found = [tuple(tensor.shape[first:]) for tensor in tensors]
        if found != expected:
            raise createPoptorchError(
                "All batches must have the same shapes: the first one had "
                f"{_shapes(expected, first)}, this one has {_shapes(found, first)}. Use "
                "drop_last=True, or pad the last batch."
            )
        return tensors

    def _set_up(self, batch: Any) -> None:
        """The first batch decides how the memory is divided; the parent is told."""
        form = Form.of(batch)
        tensors = form.tensors(batch)
        rows = self._task.rows
        if rows is not None and any(tensor.dim() == 0 for tensor in tensors):
            raise createPoptorchError(
                "A scalar has no batch dimension: it can't be rebatched. Give the tensors of the "
                "data set at least one dimension, or leave out rebatched_size."
            )
        self._layout = Layout.of(tensors, self._task.slots, rows)
        self._ring = self._lines.memory.allocate(self._layout)
        self._form = form
        self._lines.report.send_bytes(pickle.dumps((self._layout, form)))

    def _tell(self, record: Record) -> None:
        try:
            self._events.send(record)
        except BrokenPipeError:
            leave()  # Nobody is there to be told.

    # --- storing ---

    def _store(self, epoch: int, tensors: list[torch.Tensor]) -> None:
        if self._task.rows is None:
            slot = self._take_slot()
            with torch.no_grad():
                for target, tensor in zip(self._ring[slot], tensors, strict=True):
                    target.copy_(tensor)
            self._tell(Record(Kind.READY, epoch, slot))
        else:
            self._store_rows(epoch, tensors, self._task.rows)

    def _store_rows(self, epoch: int, tensors: list[torch.Tensor], rows: int) -> None:
        """Append rows to the slot that is being put together, and go on in the next one."""
        counts = {len(tensor) for tensor in tensors}
        if len(counts) > 1:
            raise createPoptorchError(
                f"The tensors of a batch have different numbers of rows ({sorted(counts)}): they "
                "can't be rebatched."
            )
        start, total = 0, counts.pop()
        while start < total:
            if self._filling is None:
                self._filling, self._filled = self._take_slot(), 0
            count = min(total - start, rows - self._filled)
            with torch.no_grad():
                for target, tensor in zip(self._ring[self._filling], tensors, strict=True):
                    target.narrow(0, self._filled, count).copy_(tensor.narrow(0, start, count))
            start += count
            self._filled += count
            if self._filled == rows:
                self._deliver_rows(epoch)

    def _deliver_rows(self, epoch: int) -> None:
        assert self._filling is not None
        slot, self._filling = self._filling, None
        self._tell(Record(Kind.READY, epoch, slot, self._filled))

    def _finish(self, epoch: int) -> None:
        if self._filling is not None and self._task.drop_last:
            self._free.appendleft(self._filling)
            self._filling = None
        elif self._filling is not None:
            self._deliver_rows(epoch)
        self._tell(Record(Kind.END, epoch))

    def _take_slot(self) -> int:
        while not self._free:
            self._obey(wait=True)
        return self._free.popleft()

    # --- obeying ---

    def _wait_until_wanted(self, epoch: int) -> None:
        """An epoch may be loaded once the program reads it, or ahead where the options say so."""
        while not (
            epoch <= self._started
            or (epoch == 0 and self._task.early_preload)
            or (0 < epoch == self._started + 1 and self._task.load_indefinitely)
        ):
            self._obey(wait=True)

    def _obey(self, *, wait: bool = False) -> None:
        """Carry out what the parent sent; where told to wait, at least one order."""
        if not wait and not self._commands.ready():
            return
        records = self._commands.receive()
        if not records:
            leave()  # The parent closed the pipe.
        reset: _Reset | None = None
        for record in records:
            if record.kind == Kind.FREE:
                self._free.append(record.slot)
            elif record.kind == Kind.STOP:
                leave()
            else:
                self._started = record.epoch
                if record.kind == Kind.RESET:
                    reset = _Reset(record.epoch)
        if reset is not None:
            raise reset


def _shapes(shapes: list[tuple[int, ...]], first: int) -> str:
    hidden = "(*, " if first else "("
    return "[" + ", ".join(hidden + ", ".join(map(str, shape)) + ")" for shape in shapes) + "]"
