"""poptorch.DataLoader with a worker ahead of the program: the same data, put together elsewhere."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from data_support import Count, Labelled, LabelledDict, Stream, gone_within, numbers, workers
from torch.utils.data import BatchSampler, RandomSampler

import poptorch
from poptorch import DataLoaderMode as Mode

#: Forking is the quickest way to start a worker; the other ways are tested in test_async_data.
FORK = {"sharing_strategy": poptorch.SharingStrategy.Fork}
AHEAD = [Mode.Async, Mode.AsyncRebatched]


@pytest.fixture(autouse=True)
def no_worker_survives() -> Iterator[None]:
    """Nothing is terminated here on purpose: loaders that go out of scope end their workers."""
    before = workers(0)
    yield
    gc.collect()
    assert gone_within(workers(0) - before, 20)


def load(dataset: Any, *, options: Any = None, **arguments: Any) -> poptorch.DataLoader:
    arguments.setdefault("async_options", FORK)
    return poptorch.DataLoader(options or poptorch.Options(), dataset, **arguments)


# --- the same data -------------------------------------------------------------------------------


@pytest.mark.parametrize("worker_count", [0, 2])
@pytest.mark.parametrize("mode", AHEAD)
def test_three_shuffled_epochs_are_those_of_torch(mode: Mode, worker_count: int) -> None:
    def read(make: Any) -> list[list[list[int]]]:
        torch.manual_seed(11)
        loader = make()
        return [numbers(loader) for _ in range(3)]

    common = {"batch_size": 4, "shuffle": True, "num_workers": worker_count, "drop_last": True}
    persistent = worker_count > 0
    expected = read(
        lambda: torch.utils.data.DataLoader(Count(30), persistent_workers=persistent, **common)
    )
    assert read(lambda: load(Count(30), mode=mode, **common)) == expected
    assert expected[0] != expected[1]


def test_making_a_loader_leaves_the_random_numbers_of_the_program_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    loader = load(Count(8), mode=Mode.Async, shuffle=True)
    assert torch.equal(torch.rand(3), expected)
    loader.terminate()


def test_loaders_made_for_each_epoch_shuffle_differently() -> None:
    torch.manual_seed(5)
    orders = [numbers(load(Count(50), mode=Mode.Async, shuffle=True)) for _ in range(2)]
    assert orders[0] != orders[1]


@pytest.mark.parametrize("mode", [Mode.Sync, *AHEAD])
@pytest.mark.parametrize("drop_last", [True, False])
def test_options_multiply_the_batch_in_every_mode(mode: Mode, drop_last: bool) -> None:
    opts = poptorch.Options().deviceIterations(3).replicationFactor(2)
    loader = load(Count(50), options=opts, batch_size=2, mode=mode, drop_last=drop_last)
    expected = numbers(torch.utils.data.DataLoader(Count(50), 12, drop_last=drop_last))
    for _ in range(2):
        assert numbers(loader) == expected
    assert len(loader) == len(expected)


@pytest.mark.parametrize("mode", AHEAD)
def test_distributed_shuffling_is_the_same_as_without_a_worker(mode: Mode) -> None:
    def loader(mode: Mode) -> poptorch.DataLoader:
        opts = poptorch.Options().randomSeed(3)
        opts.Distributed.configureProcessId(1, 2)
        return load(Count(45), options=opts, batch_size=5, shuffle=True, mode=mode)

    expected, found = loader(Mode.Sync), loader(mode)
    for _ in range(3):
        assert numbers(found) == numbers(expected)


def test_a_worker_and_the_program_can_read_one_loader_side_by_side() -> None:
    opts = poptorch.Options().randomSeed(3)
    opts.Distributed.configureProcessId(0, 2)
    loader = load(Count(40), options=opts, batch_size=5, shuffle=True, num_workers=1)
    first = numbers(loader)  # Its workers now run, and must not be shared.
    accessor = poptorch.AsynchronousDataAccessor(
        loader, sharing_strategy=poptorch.SharingStrategy.Fork
    )
    both = [numbers(loader), numbers(accessor)]
    assert both[0] == both[1] != first


# --- rebatching ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rebatched_worker_size", [None, 1, 3])
@pytest.mark.parametrize("drop_last", [True, False])
def test_rebatching_loses_nothing_between_workers(
    drop_last: bool, rebatched_worker_size: int | None
) -> None:
    loader = load(
        Stream(41),
        batch_size=4,
        num_workers=3,
        drop_last=drop_last,
        mode=Mode.AsyncRebatched,
        rebatched_worker_size=rebatched_worker_size,
    )
    for _ in range(2):
        batches = numbers(loader)
        sizes = [len(batch) for batch in batches]
        assert sizes == [4] * 10 + ([] if drop_last else [1])
        read = list(itertools.chain.from_iterable(batches))
        assert len(set(read)) == len(read)
        assert set(read) <= set(range(41))
    assert len(loader) == len(sizes)


def test_streams_without_rebatching_lose_the_remainder_of_each_worker() -> None:
    loader = load(Stream(41), batch_size=4, num_workers=3, mode=Mode.Async)
    assert len(numbers(loader)) == 14 // 4 + 14 // 4 + 13 // 4


def test_rebatching_single_elements_is_no_rebatching() -> None:
    assert numbers(load(Count(3), mode=Mode.AsyncRebatched)) == [[0], [1], [2]]


def test_worker_batches_larger_than_the_combined_batch_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"rebatched_worker_size \(5\)"):
        load(Count(8), batch_size=4, mode=Mode.AsyncRebatched, rebatched_worker_size=5)


def test_the_size_is_not_an_option_of_the_accessor_here() -> None:
    with pytest.raises(AssertionError, match="rebatched_size"):
        load(Count(8), mode=Mode.Async, async_options={"rebatched_size": 2})


# --- forms and lengths ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", AHEAD)
def test_dictionaries_and_sequences_keep_their_form(mode: Mode) -> None:
    for batch in load(LabelledDict(6), batch_size=2, mode=mode):
        assert {key: value.shape for key, value in batch.items()} == {
            "image": (2, 2),
            "label": (2, 1),
        }
    for data, labels in load(Labelled(6), batch_size=2, mode=mode):
        assert torch.equal(data[:, :1], labels.float())


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("mode", AHEAD)
def test_batches_of_a_sampler_are_combined(mode: Mode, drop_last: bool) -> None:
    sampler = BatchSampler(RandomSampler(range(22)), 2, drop_last=False)
    loader = load(
        Count(22),
        options=poptorch.Options().deviceIterations(3),
        batch_sampler=sampler,
        drop_last=drop_last,
        mode=mode,
    )
    sizes = [len(batch) for batch in numbers(loader)]
    assert sizes == [6, 6, 6] + ([] if drop_last else [4])
    assert len(loader) == len(sizes)


@pytest.mark.parametrize("drop_last", [True, False])
def test_lengths_are_rounded_as_batches_are(drop_last: bool) -> None:
    arguments = {"batch_size": 6, "drop_last": drop_last, "mode": Mode.AsyncRebatched}
    expected = (math.floor if drop_last else math.ceil)(101 / 6)
    assert len(load(Count(101), **arguments)) == expected
    assert len(load(Stream(101), **arguments)) == expected


def test_elements_without_a_batch_dimension_pass_through() -> None:
    loader = load(Count(3), batch_size=None, drop_last=False, mode=Mode.Async)
    assert [tuple(element.shape) for element in loader] == [(2,)] * 3
    assert len(loader) == 3


# --- life and death ------------------------------------------------------------------------------


def test_an_iterator_outlives_its_loader() -> None:
    iterator = iter(load(Count(6), batch_size=2, mode=Mode.Async))
    gc.collect()
    assert [int(batch[0, 0]) for batch in iterator] == [0, 2, 4]


@pytest.mark.alone
def test_a_loader_that_is_dropped_ends_its_workers_at_once() -> None:
    before = workers(0)
    loader = load(Count(50), batch_size=2, num_workers=2, mode=Mode.Async)
    next(iter(loader))
    started = workers(len(before) + 3) - before
    assert len(started) == 3
    del loader
    assert gone_within(started, 10)


def test_after_terminate_a_loader_says_so() -> None:
    with load(Count(6), mode=Mode.Async) as loader:
        assert len(list(loader)) == 6
    loader.terminate()
    with pytest.raises(poptorch.Error, match="terminated"):
        iter(loader)


def test_a_loader_has_one_accessor_only() -> None:
    loader = load(Count(6), mode=Mode.Async)
    with pytest.raises(poptorch.Error, match="already uses an AsynchronousDataAccessor"):
        poptorch.AsynchronousDataAccessor(loader)
    kept = load(Count(6), batch_size=2, drop_last=False)
    with pytest.raises(AssertionError, match="drop_last=False"):
        poptorch.AsynchronousDataAccessor(kept)
