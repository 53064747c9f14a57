"""`poptorch.DataLoader`: PyTorch's, with batches as large as one execution of a model takes.

It knows batch sizes, distributed shares and modes; loading ahead is `_async_data`'s business.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from . import profiling
from ._async_data import AsynchronousDataAccessor
from ._data_compat import accept_data_source
from ._data_partition import Partition, Share, SharedShuffle, combined
from ._errors import createPoptorchError
from ._executor_options import check_input_groups
from ._logging import logger
from .enums import DataLoaderMode
from .options import Options

accept_data_source()


class DataLoader(torch.utils.data.DataLoader[Any]):
    """Loads what one execution of a model consumes: a combined batch.

    It has `batch_size` elements for each device iteration, replica and gradient accumulation
    step. In a distributed run every process gets a share of its own of a map-style data set.
    """

    _accessor: AsynchronousDataAccessor | None = None

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        """Freeze the options and prepare to load; in an asynchronous mode, start loading.

        `persistent_workers` defaults to True where there are workers. `async_options` are
        arguments of `AsynchronousDataAccessor`. With `AsyncRebatched`, workers load
        `rebatched_worker_size` elements at a time (default: the combined batch). A
        `batch_sampler` replaces `batch_size` and `shuffle`; its batches are combined likewise.
        Other arguments go to PyTorch's DataLoader.
        """
        _require(isinstance(options, Options), "options must be a poptorch.Options")
        _require(
            mode in tuple(DataLoaderMode),
            "mode must be a poptorch.DataLoaderMode, for example DataLoaderMode.Async, not "
            f"{mode!r}",
        )
        partitioned = options.Distributed.numProcesses > 1 and auto_distributed_partitioning
        self._has_batch_sampler = batch_sampler is not None
        if self._has_batch_sampler:
            _check_batch_sampler(batch_size, shuffle, partitioned)
            batch_size = getattr(batch_sampler, "batch_size", batch_size)
        options._freeze()
        self._options = options
        self._batches_per_step = None if batch_size is None else _batches_per_step(options)
        self._combined_batch_size: int | None = None
        if batch_size is not None and self._batches_per_step is not None:
            self._combined_batch_size = batch_size * self._batches_per_step
        #: What becomes of an incomplete batch where batches are put together by us.
        self.rebatched_drop_last = drop_last

        if isinstance(dataset, torch.utils.data.IterableDataset):
            _require(
                not partitioned,
                "auto_distributed_partitioning not supported for IterableDataset",
            )
            if num_workers > 1 and kwargs.get("worker_init_fn") is None:
                _warn_of_duplicates(num_workers)
        else:
            if not drop_last:
                self._warn_of_remainder(dataset, batch_sampler)
            if partitioned:
                dataset, sampler = self._partition(dataset, bool(shuffle), drop_last)
                if sampler is not None:
                    _require("sampler" not in kwargs, "shuffle and sampler exclude each other")
                    kwargs["sampler"], shuffle = sampler, False
            profiling.Channel("dataset").instrument(dataset, "__getitem__")

        rebatched = mode == DataLoaderMode.AsyncRebatched or (
            mode == DataLoaderMode.Async and not drop_last and (self._combined_batch_size or 0) > 1
        )
        load_size = self._combined_batch_size
        if rebatched and rebatched_worker_size is not None:
            _require(
                rebatched_worker_size <= (self._combined_batch_size or 0),
                f"The rebatched_worker_size ({rebatched_worker_size}) must be <= to the combined "
                f"batch size ({self._combined_batch_size})",
            )
            load_size = rebatched_worker_size
        super().__init__(
            dataset,
            batch_size=1 if self._has_batch_sampler else load_size,
            shuffle=shuffle,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            # Where we put batches together, nothing may be dropped before.
            drop_last=drop_last and not rebatched and not self._has_batch_sampler,
            persistent_workers=num_workers > 0
            if persistent_workers is None
            else persistent_workers,
            **kwargs,
        )
        if mode != DataLoaderMode.Sync:
            # A batch of one element is never incomplete.
            size = self._combined_batch_size if rebatched else None
            self._load_ahead(async_options or {}, None if size == 1 else size)

    def _load_ahead(self, async_options: dict[str, Any], rebatched_size: int | None) -> None:
        _require(
            "rebatched_size" not in async_options,
            "rebatched_size can't be given in async_options: use DataLoaderMode.AsyncRebatched",
        )
        self._accessor = AsynchronousDataAccessor(
            self, **async_options, rebatched_size=rebatched_size
        )
        # Weakly, so that the worker ends as soon as the last user of the loader is gone.
        self._accessor._dataset = weakref.proxy(self)

    def _partition(
        self, dataset: Any, shuffle: bool, drop_last: bool
    ) -> tuple[Partition, SharedShuffle | None]:
        """This process's share of the data set, and the order in which to read it."""
        options = self._options
        _require(
            not shuffle or options.exists("random_seed"),
            "When using auto_distributed_partitioning you must set "
            "poptorch.Options.randomSeed() to ensure that tensors are in the same order in all "
            "processes.",
        )
        if self._combined_batch_size is None:
            raise AssertionError(
                "batch_size=None not allowed when using auto_distributed_partitioning."
            )
        share = Share.of(
            len(dataset),
            self._combined_batch_size,
            drop_last,
            options.Distributed.processId,
            options.Distributed.numProcesses,
        )
        order = SharedShuffle(share, options.random_seed) if shuffle else None
        return Partition(dataset, share), order

    def _warn_of_remainder(self, dataset: Any, batch_sampler: Any) -> None:
        """Say that the last batch will be smaller, where that can be known."""
        if self._combined_batch_size is None or self._batches_per_step is None:
            return
        if batch_sampler is not None:
            self._warn_of_missing_batches(batch_sampler)
            return
        elements = len(dataset)
        step = self._combined_batch_size * self._options.Distributed.numProcesses
        if elements % step:
            logger.warning(
                "The number of elements in the dataset (%d) is not divisible by the number of "
                "elements processed per step (%d) and drop_last=False. The last tensor will have "
                "a batch size of %d; with drop_last=True it would be left out.",
                elements,
                step,
                elements % step,
            )

    def _warn_of_missing_batches(self, batch_sampler: Any) -> None:
        assert self._batches_per_step is not None
        assert self._combined_batch_size is not None
        batches = _length(batch_sampler)
        if batches is None:
            logger.warning(
                "The batch_sampler has no length and drop_last=False: the last tensor may combine "
                "fewer than %d batches; with drop_last=True it would then be left out.",
                self._batches_per_step,
            )
        elif rest := batches % self._batches_per_step:
            logger.warning(
                "The number of batches generated by the batch sampler (%d) is not divisible by "
                "the number of batches processed per step (%d) and drop_last=False. The last "
                "tensor will have a batch size of %d instead of %d; with drop_last=True it would "
                "be left out.",
                batches,
                self._batches_per_step,
                rest * self._combined_batch_size // self._batches_per_step,
                self._combined_batch_size,
            )

    def _check_accessor(self, rebatched_size: int | None) -> None:
        """Refuse an accessor that this loader can't feed."""
        if self._accessor is not None:
            raise createPoptorchError(
                "The DataLoader already uses an AsynchronousDataAccessor internally. Either use "
                "the existing one or set mode=poptorch.DataLoaderMode.Sync in the DataLoader."
            )
        _require(
            rebatched_size is not None
            or self.drop_last
            or self._has_batch_sampler
            or self._combined_batch_size in (None, 1),
            "The 'drop_last=False' option from the DataLoader only works if 'rebatched_size' is "
            "specified too.",
        )

    def __len__(self) -> int:
        """The number of combined batches of an epoch."""
        size: int | None
        if self._has_batch_sampler:
            length, size = super().__len__(), self._batches_per_step
        else:
            size = None if self._accessor is None else self._accessor.rebatched_size
            length = super().__len__() if size is None else len(self.dataset)  # type: ignore[arg-type]
        if size is None:
            return length
        return length // size if self.rebatched_drop_last else -(-length // size)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._accessor is not None:
            return iter(self._accessor)
        if self._has_batch_sampler and self._batches_per_step not in (None, 1):
            return combined(super().__iter__(), self._batches_per_step, self.rebatched_drop_last)
        return super().__iter__()

    @property
    def _profiling(self) -> profiling.Channel:
        return profiling.Channel("poptorch.DataLoader")

    @property
    def combinedBatchSize(self) -> int | None:
        """How many elements one execution of the model consumes."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The (frozen) options that the loader was made with."""
        return self._options

    def terminate(self) -> None:
        """End the worker process of an asynchronous mode; of no effect in the synchronous one."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()


def _require(condition: bool, otherwise: str) -> None:
    # PopTorch asserts these; programs that expect an AssertionError get it under `python -O` too.
    if not condition:
        raise AssertionError(otherwise)


def _batches_per_step(options: Options) -> int:
    check_input_groups(options)
    replicas = options.replication_factor // options.input_group_size
    return int(options.device_iterations * replicas * options.Training.gradient_accumulation)


def _check_batch_sampler(batch_size: int | None, shuffle: bool | None, partitioned: bool) -> None:
    if batch_size != 1 or shuffle:
        raise createPoptorchError(
            "`batch_sampler` option is mutually exclusive with batch_size, shuffle.",
            remedy="Leave batch_size and shuffle out: the sampler decides about both.",
        )
    if partitioned:
        raise createPoptorchError(
            "`batch_sampler` option is mutually exclusive with auto_distributed_partitioning=True.",
            remedy="Pass auto_distributed_partitioning=False, and sample in each process its part.",
        )


def _length(sized: Any) -> int | None:
    try:
        length = len(sized)
    except (TypeError, NotImplementedError):
        return None
    return length


def _warn_of_duplicates(num_workers: int) -> None:
    logger.warning(
        "IterableDataset used with num_workers=%d but no worker_init_fn specified: every worker "
        "reads the whole data set, so the DataLoader will return each element %d times (see "
        "torch.utils.data.IterableDataset's documentation).",
        num_workers,
        num_workers,
    )
