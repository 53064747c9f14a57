"""`AsynchronousDataAccessor`: batches that a process of its own has loaded before they are wanted.

The program's end of the ring: it waits for filled slots, hands them out and gives them back. The
other end is `_data_worker`.
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import pickle
import select
from collections import deque
from multiprocessing.util import Finalize
from typing import Any, NoReturn

import torch

from softipu.devices.process import here

from ._data_process import (
    REMEDY,
    FileParcel,
    Parcel,
    Randomness,
    context_for,
    end,
    obituary,
    start,
)
from ._data_ring import Kind, Memory, Receiver, Record, Sender
from ._data_worker import Lines, Task, main
from ._errors import Error, createPoptorchError
from ._logging import logger
from .enums import SharingStrategy

#: How often a waiting program looks whether its worker lives; its pipes normally tell at once.
_LOOK_EVERY_MS = 250


class AsynchronousDataAccessor:
    """Loads a data set in a process of its own, a few batches ahead of the program.

    Batches lie in shared memory: what an iteration returns is overwritten once the next one is
    asked for, so clone what you want to keep. With `rebatched_size`, batches are put together
    from smaller ones; the incomplete last one is dropped unless the data set is a
    `poptorch.DataLoader` with `drop_last=False`.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ) -> None:
        """Start the worker.

        `dataset` is any iterable, `buffer_size` the number of batches ahead. With
        `load_indefinitely` the next epoch is loaded as soon as one is complete, with
        `early_preload` the first one before an iterator asks for it. `sharing_strategy` says how
        the data set gets to the worker. `miss_sleep_time_in_ms` bounds how late a worker notices
        a free slot: it notices at once, whatever the value.
        """
        self._worker: Worker | None = None
        self._dataset = dataset
        self.rebatched_size = rebatched_size
        _check(dataset, buffer_size, miss_sleep_time_in_ms, rebatched_size)
        task = Task(
            slots=buffer_size,
            rows=rebatched_size,
            drop_last=getattr(dataset, "rebatched_drop_last", True),
            load_indefinitely=load_indefinitely,
            early_preload=early_preload,
            one_thread=sharing_strategy == SharingStrategy.Fork,
            randomness=Randomness.here(),
            parent=here(),
            start_method=multiprocessing.get_start_method(allow_none=True),
        )
        self._worker = Worker(task, _for_shipping(dataset), SharingStrategy(sharing_strategy))
        # multiprocessing's own finalizers run before it waits for children at exit, and never in
        # a forked copy of this process; atexit and __del__ promise neither.
        self._finalizer = Finalize(self, self._worker.stop, exitpriority=100)

    def terminate(self) -> None:
        """End the worker process. The accessor can't be used afterwards."""
        if self._worker is not None:
            self._worker = None
            self._finalizer()

    def __enter__(self) -> AsynchronousDataAccessor:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def __len__(self) -> int:
        """The number of batches of an epoch, where the data set knows its length."""
        length = len(self._dataset)
        if not self.rebatched_size or getattr(self._dataset, "_accessor", None) is self:
            return length
        rows = length * (getattr(self._dataset, "batch_size", None) or 1)
        if getattr(self._dataset, "rebatched_drop_last", True):
            return rows // self.rebatched_size
        return -(-rows // self.rebatched_size)

    def __iter__(self) -> AsynchronousDataAccessor:
        self._running().begin()
        return self

    def __next__(self) -> Any:
        return self._running().next()

    def _running(self) -> Worker:
        if self._worker is None:
            raise createPoptorchError(
                "The AsynchronousDataAccessor was terminated: create a new one to load more data."
            )
        return self._worker


class Worker:
    """A worker process as the program sees it."""

    def __init__(self, task: Task, dataset: Any, strategy: SharingStrategy) -> None:
        logger.debug("AsynchronousDataAccessor parent process: %d", os.getpid())
        self._load_indefinitely = task.load_indefinitely
        self._slots = task.slots
        self._epoch = -1  #: the epoch that is being read
        self._used = False  #: whether anything of it was
        self._ended = False  #: whether all of it was
        self._held: int | None = None  #: the slot that the program may still look at
        self._failure: Error | None = None
        self._news: deque[Record] = deque()
        self._stopped = False
        self._owner = os.getpid()
        self._start(task, dataset, strategy)
        try:
            self._set_up()
        except BaseException:
            self.stop()
            raise

    def _start(self, task: Task, dataset: Any, strategy: SharingStrategy) -> None:
        context = context_for(strategy)
        parcel = FileParcel(dataset) if strategy == SharingStrategy.FileSystem else Parcel(dataset)
        self._discard_parcel = parcel.discard
        self._memory = Memory()
        orders, commands = context.Pipe(duplex=False)
        events, news = context.Pipe(duplex=False)
        self._report, report = context.Pipe(duplex=False)
        theirs = Lines(orders, news, report, self._memory)
        ours = (commands, events, self._report)
        try:
            inherited = ours if strategy == SharingStrategy.Fork else ()
            self._process = start(context, main, (task, parcel, theirs, inherited))
        except BaseException:
            for pipe in (*ours, self._memory):
                pipe.close()
            parcel.discard()
            raise
        finally:
            for pipe in (orders, news, report):
                pipe.close()
        self._commands = Sender(commands)
        self._events = Receiver(events)

    def _set_up(self) -> None:
        """Wait for the first batch, which says how the memory is divided."""
        try:
            found = self._wait_for(self._report.fileno()) and self._read_report()
        finally:
            self._discard_parcel()
        if not found:
            found = f"{self._obituary()}\n  Way out: {REMEDY}"
        if isinstance(found, str):
            raise createPoptorchError(
                "AsynchronousDataAccessor worker thread failed to start (Check above for details)"
                f"\n{found}"
            )
        layout, self._form = found
        self._full = layout.fields[0].shape[:1]
        self._ring = self._memory.map(layout)

    # --- reading ---

    def begin(self) -> None:
        """Start reading an epoch: the next one, or this one afresh if it was read in part."""
        self._check()
        if self._epoch >= 0 and not self._used and not self._ended:
            return
        # A synchronous DataLoader draws here too: loaders that are made later shuffle differently.
        torch.empty((), dtype=torch.int64).random_()
        self._held = None  # Free anyhow: at the end of an epoch, and after a reset.
        if self._epoch < 0 or (self._ended and self._load_indefinitely):
            self._epoch += 1
            self._order(Record(Kind.START, self._epoch))
        else:
            self._epoch += 2  # The worker may be in the next one already.
            self._order(Record(Kind.RESET, self._epoch))
        self._used = self._ended = False

    def next(self) -> Any:
        """The next batch; StopIteration at the end of the epoch."""
        self._check()
        if self._epoch < 0:
            self.begin()
        self._free_held()
        while not self._ended:
            record = self._next_news()
            if record.kind == Kind.FAILED:
                self._fail()
            elif record.epoch != self._epoch:
                continue  # Loaded before a reset.
            elif record.kind == Kind.END:
                self._ended = True
            else:
                self._used = True
                self._held = record.slot
                return self._form.batch(self._tensors(record))
        raise StopIteration

    def _tensors(self, record: Record) -> list[torch.Tensor]:
        tensors = self._ring[record.slot]
        if record.rows in (-1, *self._full):
            return tensors
        return [tensor.narrow(0, 0, record.rows) for tensor in tensors]

    def _free_held(self) -> None:
        if self._held is not None:
            slot, self._held = self._held, None
            self._order(Record(Kind.FREE, self._epoch, slot))

    def _next_news(self) -> Record:
        if not self._news:
            if self._wait_for(self._events.fileno()):
                self._news.extend(self._events.receive())
            if not self._news:
                self._fail()
        return self._news.popleft()

    def _wait_for(self, descriptor: int) -> bool:
        """Wait until there is something to read; False if the worker died and there is nothing."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._process.sentinel, select.POLLIN)
        while True:
            ready = {number for number, _ in poll.poll(_LOOK_EVERY_MS)}
            if descriptor in ready:
                return True
            # Processes that the worker started may hold its pipes open longer than it lives.
            if self._process.exitcode is not None:
                return descriptor in {number for number, _ in poll.poll(0)}

    def _order(self, record: Record) -> None:
        # To a dead worker: its last news, which tell why, are still to be read.
        with contextlib.suppress(BrokenPipeError):
            self._commands.send(record)

    # --- failing and stopping ---

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if os.getpid() != self._owner:
            raise createPoptorchError(
                "The data is loaded for another process: create the AsynchronousDataAccessor (or "
                "DataLoader) in the process that reads it."
            )

    def _read_report(self) -> Any:
        """The layout and form of batches, or the text of a failure, or "" if nothing came."""
        with contextlib.suppress(EOFError):
            return pickle.loads(self._report.recv_bytes())
        return ""

    def _obituary(self) -> str:
        return f"The worker process {obituary(self._process)}."

    def _fail(self) -> NoReturn:
        """Raise what ended the worker."""
        text = self._read_report() if self._report.poll() else ""
        self._failure = createPoptorchError(
            f"An error occurred in the data fetcher\n{text or self._obituary()}",
            remedy="Correct what the lines above name in the data set, then create the DataLoader "
            "(or AsynchronousDataAccessor) again."
            if text
            else "A process that is killed often has no memory left: use fewer workers, smaller "
            "batches or a smaller buffer_size, and create the DataLoader (or "
            "AsynchronousDataAccessor) again.",
        )
        raise self._failure

    def stop(self) -> None:
        """End the process and give everything back."""
        if self._stopped:
            return
        self._stopped = True
        self._order(Record(Kind.STOP))
        for pipe in (self._commands, self._events, self._report, self._memory):
            pipe.close()
        end(self._process)

    # --- looking ---

    @property
    def _data_buffers(self) -> Worker:
        return self

    @property
    def indices_mem(self) -> list[bool]:
        """For each slot, whether it holds a batch that is still to be read."""
        while self._events.ready() and (records := self._events.receive()):
            self._news.extend(records)
        filled = {record.slot for record in self._news if record.kind == Kind.READY}
        return [slot in filled for slot in range(self._slots)]


def _check(dataset: Any, slots: int, sleep_ms: float, rebatched_size: int | None) -> None:
    """Refuse what can't work, before a process is started for it."""
    from ._dataloader import DataLoader

    if isinstance(dataset, DataLoader):
        dataset._check_accessor(rebatched_size)
    if rebatched_size is not None and rebatched_size <= 1:
        raise AssertionError(
            f"rebatched_size must be None or greater than 1 (it is {rebatched_size})"
        )
    if slots < 1:
        raise createPoptorchError(
            f"buffer_size must be at least 1 (it is {slots})",
            remedy="Leave buffer_size out, or choose a larger one.",
        )
    if sleep_ms < 0:
        raise createPoptorchError(
            f"miss_sleep_time_in_ms must not be negative (it is {sleep_ms})",
            remedy="Leave it out, or choose 0 or more.",
        )


def _for_shipping(dataset: Any) -> Any:
    """The data set without what belongs to this process: a DataLoader's running workers."""
    if not isinstance(dataset, torch.utils.data.DataLoader):
        return dataset
    shipped = copy.copy(dataset)
    shipped._iterator = None
    if hasattr(shipped, "_accessor"):
        shipped._accessor = None
    return shipped
