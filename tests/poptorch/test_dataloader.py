"""poptorch.DataLoader in its own process: batch sizes, shares of distributed runs, samplers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from data_support import Count, Labelled, Stream, numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

import poptorch
from poptorch._data_partition import Partition, Share, SharedShuffle

small = st.integers(1, 4)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Hundreds of announced remainders are of no interest."""
    logger = logging.getLogger("poptorch::python")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def flat(lists: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def options(
    iterations: int = 1,
    replicas: int = 1,
    accumulation: int = 1,
    process: int = 0,
    processes: int = 1,
    seed: int | None = None,
) -> poptorch.Options:
    opts = poptorch.Options()
    opts.deviceIterations(iterations)
    opts.replicationFactor(replicas)
    opts.Training.gradientAccumulation(accumulation)
    if processes > 1:
        opts.Distributed.configureProcessId(process, processes)
    if seed is not None:
        opts.randomSeed(seed)
    return opts


# --- batches -------------------------------------------------------------------------------------


@given(st.integers(0, 100), small, small, small, small, st.booleans())
@settings(max_examples=60, deadline=None)
def test_batches_are_those_of_torch_with_the_combined_size(
    length: int, batch: int, iterations: int, replicas: int, accumulation: int, drop_last: bool
) -> None:
    combined = batch * iterations * replicas * accumulation
    opts = options(iterations, replicas, accumulation)
    ours = poptorch.DataLoader(opts, Count(length), batch_size=batch, drop_last=drop_last)
    theirs = torch.utils.data.DataLoader(Count(length), batch_size=combined, drop_last=drop_last)
    assert ours.combinedBatchSize == combined
    assert numbers(ours) == numbers(theirs)
    assert len(ours) == len(theirs)


def test_replicas_that_share_their_input_count_once() -> None:
    opts = options(replicas=4)
    opts.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    assert poptorch.DataLoader(opts, Count(8), batch_size=3).combinedBatchSize == 6


def test_shuffling_draws_the_same_numbers_as_torch() -> None:
    torch.manual_seed(3)
    ours = numbers(poptorch.DataLoader(options(2), Count(40), batch_size=4, shuffle=True))
    torch.manual_seed(3)
    theirs = numbers(torch.utils.data.DataLoader(Count(40), batch_size=8, shuffle=True))
    assert ours == theirs


def test_incomplete_batches_are_dropped_unless_told_otherwise() -> None:
    assert numbers(poptorch.DataLoader(options(), Count(5), batch_size=2)) == [[0, 1], [2, 3]]
    kept = poptorch.DataLoader(options(), Count(5), batch_size=2, drop_last=False)
    assert numbers(kept) == [[0, 1], [2, 3], [4]]


def test_without_a_batch_size_elements_come_one_by_one() -> None:
    loader = poptorch.DataLoader(options(3), Count(2), batch_size=None, drop_last=False)
    assert [tuple(element.shape) for element in loader] == [(2,), (2,)]
    assert loader.combinedBatchSize is None
    assert loader.options.device_iterations == 3


def test_the_options_are_frozen_and_can_be_read_back() -> None:
    opts = options()
    loader = poptorch.DataLoader(opts, Count(4))
    assert loader.options is opts
    with pytest.raises(Exception, match="frozen"):
        opts.deviceIterations(2)


def test_a_mode_that_is_none_is_refused_and_not_taken_for_the_synchronous_one() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(4))
    with pytest.raises(AssertionError, match=r"for example DataLoaderMode\.Async, not 'Async'"):
        poptorch.DataLoader(poptorch.Options(), data, mode="Async")  # type: ignore[arg-type]


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(AssertionError, match="Options"):
        poptorch.DataLoader({}, Count(4))


def test_workers_persist_by_default_where_there_are_any() -> None:
    assert poptorch.DataLoader(options(), Count(4), num_workers=1).persistent_workers
    assert not poptorch.DataLoader(options(), Count(4)).persistent_workers
    chosen = poptorch.DataLoader(options(), Count(4), num_workers=1, persistent_workers=False)
    assert not chosen.persistent_workers


def test_other_arguments_go_to_torch() -> None:
    loader = poptorch.DataLoader(options(), Count(4), batch_size=2, collate_fn=len)
    assert list(loader) == [2, 2]


def test_terminate_and_the_context_manager_do_no_harm_in_sync_mode() -> None:
    with poptorch.DataLoader(options(), Count(4), batch_size=2) as loader:
        loader.terminate()
        assert len(list(loader)) == 2
    assert len(list(loader)) == 2


# --- warnings ------------------------------------------------------------------------------------


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(
        logging.getLogger("poptorch::python"),
        "warning",
        lambda text, *arguments: said.append(text % arguments),
    )
    return said


def test_a_smaller_last_batch_is_announced(warnings: list[str]) -> None:
    poptorch.DataLoader(options(2), Count(10), batch_size=2, drop_last=False)
    (text,) = warnings
    assert "(10) is not divisible" in text
    assert "batch size of 2" in text


def test_a_fitting_last_batch_is_not(warnings: list[str]) -> None:
    poptorch.DataLoader(options(2), Count(8), batch_size=2, drop_last=False)
    poptorch.DataLoader(options(2), Count(10), batch_size=2)
    assert warnings == []


def test_workers_that_would_repeat_a_stream_are_announced(warnings: list[str]) -> None:
    poptorch.DataLoader(options(), Stream(10), num_workers=3)
    (text,) = warnings
    assert "each element 3 times" in text
    poptorch.DataLoader(options(), Stream(10), num_workers=3, worker_init_fn=print)
    assert len(warnings) == 1


# --- batch samplers ------------------------------------------------------------------------------


def batches_of(length: int, size: int, drop_last: bool = False) -> Any:
    return BatchSampler(SequentialSampler(range(length)), size, drop_last)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("iterations", [1, 3])
def test_batches_of_a_sampler_are_combined(iterations: int, drop_last: bool) -> None:
    loader = poptorch.DataLoader(
        options(iterations), Count(14), batch_sampler=batches_of(14, 2), drop_last=drop_last
    )
    whole = [list(range(i, i + 2 * iterations)) for i in range(0, 14, 2 * iterations)]
    expected = [[n for n in batch if n < 14] for batch in whole]
    if drop_last:
        expected = [batch for batch in expected if len(batch) == 2 * iterations]
    assert numbers(loader) == expected
    assert len(loader) == len(expected)
    assert loader.combinedBatchSize == 2 * iterations


def test_combined_batches_keep_their_structure() -> None:
    loader = poptorch.DataLoader(options(2), Labelled(8), batch_sampler=batches_of(8, 2))
    (data, labels), _ = list(loader)
    assert data.shape == (4, 2)
    assert labels.flatten().tolist() == [0, 1, 2, 3]


def test_an_empty_sampler_gives_no_batches() -> None:
    loader = poptorch.DataLoader(
        options(2), Count(8), batch_sampler=batches_of(0, 2), drop_last=False
    )
    assert list(loader) == []


def test_a_sampler_excludes_what_it_replaces() -> None:
    for arguments in ({"batch_size": 2}, {"shuffle": True}):
        with pytest.raises(poptorch.Error, match="mutually exclusive with batch_size, shuffle"):
            poptorch.DataLoader(options(), Count(8), batch_sampler=batches_of(8, 2), **arguments)
    with pytest.raises(poptorch.Error, match="auto_distributed_partitioning=True"):
        poptorch.DataLoader(options(processes=2), Count(8), batch_sampler=batches_of(8, 2))


class OldSampler(Sampler[list[int]]):
    """Written as PyTorch 2.0 documented it."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)

    def __iter__(self) -> Any:
        yield [0, 1]
        yield [2]


class Named:
    def __init__(self, name: str = "") -> None:
        self.name = name


class NewSampler(Sampler[int], Named):
    def __init__(self) -> None:
        super().__init__(name="new")


def test_samplers_that_pass_on_their_source_still_work(warnings: list[str]) -> None:
    loader = poptorch.DataLoader(
        options(), Count(3), batch_sampler=OldSampler(Count(3)), drop_last=False
    )
    assert numbers(loader) == [[0, 1], [2]]
    assert "no length" in warnings[0]
    with pytest.raises(TypeError):
        len(loader)


def test_samplers_with_other_bases_still_reach_them() -> None:
    assert NewSampler().name == "new"
    with pytest.raises(TypeError):
        Sampler(1, 2)  # type: ignore[call-arg]


# --- shares of distributed runs ------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_shuffled_shares_are_equal_disjoint_and_move(
    total: int, step: int, processes: int, seed: int
) -> None:
    if total < step * processes:
        with pytest.raises(poptorch.Error, match=f"has {total} elements"):
            Share.of(total, step, True, 0, processes)
        return
    shares = [Share.of(total, step, True, process, processes) for process in range(processes)]
    orders = [SharedShuffle(share, seed) for share in shares]
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(4):
        read = [list(order) for order in orders]
        assert {len(part) for part in read} == {total // (step * processes) * step}
        assert len(set(flat(read))) == len(flat(read))
        # All parts together are a contiguous piece of one permutation that everybody shares.
        permutation = torch.randperm(total, generator=generator).tolist()
        start = 0 if epoch % 2 else total % shares[0].length
        assert flat(read) == permutation[start : start + len(flat(read))]


@given(st.integers(0, 300), st.integers(1, 12), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_without_dropping_every_element_has_one_owner(
    total: int, step: int, processes: int
) -> None:
    shares = [Share.of(total, step, False, process, processes) for process in range(processes)]
    owned = [i for share in shares for i in range(share.offset, share.offset + share.length)]
    assert owned == list(range(total))
    lengths = [share.length for share in shares]
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(0, 200), small, small, small, st.integers(2, 4), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_processes_read_equally_many_batches_and_nothing_twice(
    spare: int,
    batch: int,
    iterations: int,
    accumulation: int,
    processes: int,
    drop_last: bool,
    shuffle: bool,
) -> None:
    step = batch * iterations * accumulation
    length = step * processes + spare
    loaders = [
        poptorch.DataLoader(
            options(iterations, 1, accumulation, process, processes, seed=1),
            Count(length),
            batch_size=batch,
            drop_last=drop_last,
            shuffle=shuffle,
        )
        for process in range(processes)
    ]
    for _ in range(2):
        read = [numbers(loader) for loader in loaders]
        seen = [number for part in read for batch in part for number in batch]
        assert len(set(seen)) == len(seen)
        assert [len(part) for part in read] == [len(loader) for loader in loaders]
        if drop_last:
            assert {len(loader) for loader in loaders} == {length // (step * processes)}
        else:
            assert sorted(seen) == list(range(length))


def test_shares_follow_each_other() -> None:
    read = []
    for process in range(3):
        loader = poptorch.DataLoader(
            options(process=process, processes=3), Count(100), batch_size=4
        )
        assert len(loader) == 8
        assert isinstance(loader.dataset, Partition)
        read += flat(numbers(loader))
    assert read == list(range(96))


@pytest.mark.parametrize("workers", [0, 2])
def test_persistent_workers_follow_the_shuffled_order(workers: int) -> None:
    loader = poptorch.DataLoader(
        options(processes=2, process=1, seed=7),
        Count(22),
        batch_size=5,
        shuffle=True,
        num_workers=workers,
    )
    generator = torch.Generator().manual_seed(7)
    for start in (12, 10, 12):  # 22 % 10 elements are left over.
        order = torch.randperm(22, generator=generator).tolist()
        assert flat(numbers(loader)) == order[start : start + 10]


def test_a_share_ends_where_it_ends() -> None:
    part = Partition(Count(10), Share.of(10, 5, True, 1, 2))
    assert [int(element[0]) for element in part] == [5, 6, 7, 8, 9]
    with pytest.raises(IndexError):
        part[-1]


def test_data_sets_that_load_many_at_once_are_asked_to() -> None:
    class Many(Count):
        def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
            return [torch.full((2,), index + 1000.0) for index in indices]

    loader = poptorch.DataLoader(options(processes=2, process=1), Many(8), batch_size=2)
    assert numbers(loader) == [[1004, 1005], [1006, 1007]]


def test_distributed_runs_demand_a_seed_a_batch_size_and_a_map() -> None:
    def load(dataset: Any, **arguments: Any) -> None:
        poptorch.DataLoader(options(processes=2), dataset, **arguments)

    with pytest.raises(AssertionError, match="randomSeed"):
        load(Count(8), shuffle=True)
    with pytest.raises(AssertionError, match="batch_size=None"):
        load(Count(8), batch_size=None, drop_last=False)
    with pytest.raises(AssertionError, match="not supported for IterableDataset"):
        load(Stream(8))
    load(Stream(8), auto_distributed_partitioning=False)


def test_partitioning_can_be_left_to_the_program() -> None:
    loader = poptorch.DataLoader(
        options(processes=2), Count(4), batch_size=2, auto_distributed_partitioning=False
    )
    assert numbers(loader) == [[0, 1], [2, 3]]
