"""AsynchronousDataAccessor: what arrives, when it is loaded, and what happens when things die."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from data_support import (
    Count,
    FailsAt,
    Growing,
    Labelled,
    MarksItsEnd,
    Noise,
    Pair,
    Pairs,
    StopsAt,
    Stream,
    alive,
    children,
    gone_within,
    numbers,
    workers,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import poptorch
from poptorch import AsynchronousDataAccessor
from poptorch import SharingStrategy as Sharing


def load(dataset: Any, **arguments: Any) -> AsynchronousDataAccessor:
    arguments.setdefault("sharing_strategy", Sharing.Fork)  # the quickest to start
    return AsynchronousDataAccessor(dataset, **arguments)


def worker_of(accessor: AsynchronousDataAccessor) -> int:
    assert accessor._worker is not None
    pid = accessor._worker._process.pid
    assert pid is not None
    return pid


def ready(accessor: AsynchronousDataAccessor, at_least: int) -> int:
    """How many slots are filled, once no more are coming."""
    assert accessor._worker is not None
    deadline = time.monotonic() + 30
    while sum(accessor._worker.indices_mem) < at_least and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    return sum(accessor._worker.indices_mem)


@pytest.fixture(autouse=True)
def no_worker_survives() -> Iterator[None]:
    before = workers(0)
    yield
    gc.collect()
    # What multiprocessing itself starts stays: the fork server and the tracker of resources.
    started = {pid for pid in workers(0) - before if b"poptorch-data" in _maps(pid)}
    assert gone_within(started, 20)


def _maps(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


# --- what arrives --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", list(Sharing))
def test_every_sharing_strategy_brings_what_torch_would_shuffle(strategy: Sharing) -> None:
    loader = torch.utils.data.DataLoader(Count(9), shuffle=True)
    torch.manual_seed(2)
    expected = [numbers(loader) for _ in range(2)]
    torch.manual_seed(2)
    accessor = load(loader, sharing_strategy=strategy)
    assert [numbers(accessor) for _ in range(2)] == expected
    assert len(accessor) == 9
    accessor.terminate()


_DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64,
]  # fmt: skip
_tensor = st.tuples(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(_DTYPES))


@given(st.lists(st.lists(_tensor, min_size=1, max_size=3), min_size=1, max_size=1))
@settings(max_examples=12, deadline=None)
def test_any_tensors_arrive_bit_by_bit(forms: list[list[Any]]) -> None:
    batches = [
        [torch.randint(0, 2, shape).to(dtype) for shape, dtype in form]
        for form in forms
        for _ in range(4)
    ]
    with load(batches, buffer_size=2) as accessor:
        for found, expected in zip(accessor, batches, strict=True):
            for a, b in zip(found, expected, strict=True):
                assert torch.equal(a, b)
                assert a.dtype == b.dtype


def test_views_and_gradients_stay_behind() -> None:
    source = torch.arange(6.0, requires_grad=True).reshape(2, 3).t()
    (found,) = list(load([source]))
    assert torch.equal(found, source.detach())
    assert found.is_contiguous()
    assert not found.requires_grad


def test_tuples_arrive_as_lists() -> None:
    data, label = next(iter(load(Labelled(3))))
    assert (data.tolist(), label.tolist()) == ([0, 0], [0])
    assert isinstance(next(iter(load(Labelled(3)))), list)


def test_objects_with_a_parser_arrive_as_objects() -> None:
    class Parser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct: Any) -> Any:
            yield struct.first
            yield struct.second

        def reconstruct(self, original_structure: Any, tensor_iterator: Any) -> Any:
            return Pair(next(tensor_iterator), next(tensor_iterator), original_structure.name)

    poptorch.registerCustomArgParser(Pair, Parser())
    try:
        pairs = [(pair.first[0].item(), pair.second.item(), pair.name) for pair in load(Pairs(3))]
    finally:
        poptorch.registerCustomArgParser(Pair, None)
    assert pairs == [(0, 0, "named"), (1, 1, "named"), (2, 2, "named")]


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([], "The Dataset is empty"),
        ([[torch.zeros(1), 5]], "Tensor at index 1 is not a torch tensor"),
        ([[torch.zeros(1), [torch.zeros(1)]]], "flat 1D container"),
        ([7], "not a container"),
        ([[]], "no tensors"),
    ],
)
def test_data_that_can_not_be_shared_is_refused_at_the_start(batches: Any, said: str) -> None:
    with pytest.raises(poptorch.Error, match="worker thread failed to start") as failure:
        load(batches)
    assert said in str(failure.value)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        (Growing(3), r"\(1\)\], this one has \[\(2\)\]"),
        ([{"a": torch.zeros(1)}, {"b": torch.zeros(1)}], r"keys \['a'\]"),
    ],
)
def test_batches_unlike_the_first_are_refused(batches: Any, said: str) -> None:
    accessor = load(batches)
    with pytest.raises(poptorch.Error, match=said):
        list(accessor)


# --- the ring ------------------------------------------------------------------------------------


def test_a_batch_lives_until_the_next_one_is_asked_for() -> None:
    accessor = load(Count(20), buffer_size=2)
    iterator = iter(accessor)
    first = next(iterator)
    copy = first.clone()
    ready(accessor, 1)
    assert torch.equal(first, copy)  # The worker is ahead, but not here.
    next(iterator)
    third = next(iterator)
    assert third.data_ptr() == first.data_ptr()  # Two buffers: the third batch is in the first's.
    assert not torch.equal(first, copy)


def test_the_memory_has_no_name_that_could_stay_behind() -> None:
    accessor = load(Count(3, shape=(1000,)))
    lines = _maps(worker_of(accessor)).splitlines()
    shared = [line for line in lines if b"poptorch-data" in line]
    assert shared
    assert all(b"/memfd:" in line for line in shared)


@pytest.mark.parametrize(("early", "expected"), [(False, 1), (True, 4)])
def test_early_preload_fills_the_ring_before_anybody_asks(early: bool, expected: int) -> None:
    accessor = load(Count(20), buffer_size=4, early_preload=early)
    assert ready(accessor, expected) == expected


@pytest.mark.parametrize(("indefinitely", "expected"), [(True, 2), (False, 0)])
def test_load_indefinitely_loads_the_next_epoch_early(indefinitely: bool, expected: int) -> None:
    accessor = load(Count(5), buffer_size=2, load_indefinitely=indefinitely)
    for _ in range(3):
        assert [int(element[0]) for element in accessor] == [0, 1, 2, 3, 4]
        assert ready(accessor, expected) == expected


@pytest.mark.parametrize("indefinitely", [True, False])
@pytest.mark.parametrize("read", [0, 1, 3, 5])
def test_an_epoch_that_was_left_starts_afresh(read: int, indefinitely: bool) -> None:
    accessor = load(Count(5), load_indefinitely=indefinitely)
    for _ in range(3):
        iterator = iter(accessor)
        assert [int(next(iterator)[0]) for _ in range(read)] == list(range(read))
    assert [int(element[0]) for element in accessor] == [0, 1, 2, 3, 4]


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_epochs_can_be_left_anywhere(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 6))
    slots = data.draw(st.integers(1, 4))
    with load(Count(length), buffer_size=slots) as accessor:
        for read in data.draw(st.lists(st.integers(0, length + 1), max_size=6)):
            found = [int(element[0]) for element, _ in zip(accessor, range(read), strict=False)]
            assert found == list(range(min(read, length)))


def test_an_exhausted_iterator_gives_empty_epochs() -> None:
    accessor = load(iter([torch.zeros(1), torch.ones(1)]))
    assert [len(list(accessor)) for _ in range(3)] == [2, 0, 0]


def test_single_slots_work() -> None:
    assert [int(element[0]) for element in load(Count(5), buffer_size=1)] == [0, 1, 2, 3, 4]


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(sum),
    rebatched=st.integers(2, 7),
)
@settings(max_examples=12, deadline=None)
def test_rebatching_keeps_rows_in_order(sizes: list[int], rebatched: int) -> None:
    rows = iter(range(sum(sizes)))
    batches = [torch.tensor([next(rows) for _ in range(size)]) for size in sizes]
    with load(batches, rebatched_size=rebatched) as accessor:
        for _ in range(2):
            found = [batch.tolist() for batch in accessor]
            whole = sum(sizes) // rebatched
            assert found == [list(range(i * rebatched, (i + 1) * rebatched)) for i in range(whole)]


def test_drop_last_of_the_loader_rules_the_rebatched_remainder() -> None:
    for drop_last, sizes in ((True, [4, 4]), (False, [4, 4, 2])):
        loader = poptorch.DataLoader(
            poptorch.Options(), Count(10), batch_size=2, drop_last=drop_last
        )
        accessor = load(loader, rebatched_size=4)
        assert [len(batch) for batch in numbers(accessor)] == sizes
        assert len(accessor) == len(sizes)


@pytest.mark.parametrize(
    ("batches", "said"),
    [([torch.tensor(1.0)], "scalar"), ([[torch.zeros(2), torch.zeros(3)]], "different numbers")],
)
def test_what_can_not_be_rebatched_is_refused(batches: Any, said: str) -> None:
    with pytest.raises(poptorch.Error, match=said):
        list(load(batches, rebatched_size=2))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"rebatched_size": 1}, AssertionError),
        ({"buffer_size": 0}, poptorch.Error),
        ({"miss_sleep_time_in_ms": -1}, poptorch.Error),
    ],
)
def test_senseless_arguments_are_refused(arguments: Any, kind: Any) -> None:
    with pytest.raises(kind, match=next(iter(arguments))):
        load(Count(3), **arguments)


def test_a_seed_makes_the_noise_of_a_worker_repeatable() -> None:
    def noise() -> Any:
        return [element.tolist() for element in load(Noise(4))]

    torch.manual_seed(1)
    first = noise()
    torch.manual_seed(1)
    assert noise() == first
    assert noise() != first


def test_waiting_costs_no_processor_time() -> None:
    accessor = load(StopsAt(3, at=1))
    iterator = iter(accessor)
    next(iterator)
    before = time.process_time()
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.6)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert time.process_time() - before < 0.2


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker_count", [0, 2])
def test_a_failing_data_set_fails_the_program_after_the_good_elements(worker_count: int) -> None:
    loader = torch.utils.data.DataLoader(FailsAt(9, bad=4), num_workers=worker_count)
    accessor = load(loader)
    iterator = iter(accessor)
    assert [int(next(iterator)[0, 0]) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(poptorch.Error, match="An error occurred in the data fetcher") as failure:
        next(iterator)
    assert "ValueError: element 4 is spoilt" in str(failure.value)
    assert "in __getitem__" in str(failure.value)
    with pytest.raises(poptorch.Error, match="element 4 is spoilt"):
        iter(accessor)
    accessor.terminate()


def test_a_data_set_that_fails_at_once_fails_the_start(capfd: Any) -> None:
    with pytest.raises(poptorch.Error, match="worker thread failed to start") as failure:
        load(FailsAt(9, bad=0))
    assert "ValueError: element 0 is spoilt" in str(failure.value)
    assert "ValueError: element 0 is spoilt" in capfd.readouterr().err


@pytest.mark.parametrize("strategy", [Sharing.ForkServer, Sharing.FileSystem])
def test_a_data_set_that_can_not_be_pickled_says_the_way_out(strategy: Sharing) -> None:
    class Local(Count):
        pass

    with pytest.raises(poptorch.Error, match=r"Local.*can't be pickled(.|\n)*SharingStrategy.Fork"):
        load(Local(3), sharing_strategy=strategy)


def _refuses(*_: Any) -> Any:
    raise RuntimeError("not here")


class OpensNowhere(Count):
    def __reduce__(self) -> Any:
        return _refuses, (1,)


def test_a_data_set_that_can_not_be_unpickled_says_the_way_out(capfd: Any) -> None:
    with pytest.raises(poptorch.Error, match=r"failed to start(.|\n)*not here(.|\n)*Way out"):
        load(OpensNowhere(3), sharing_strategy=Sharing.ForkServer)


@pytest.mark.alone
@pytest.mark.parametrize("strategy", [Sharing.Fork, Sharing.ForkServer])
def test_a_killed_worker_is_noticed_at_once(strategy: Sharing) -> None:
    loader = torch.utils.data.DataLoader(StopsAt(9, at=4), num_workers=1)
    accessor = load(loader, sharing_strategy=strategy)
    iterator = iter(accessor)
    next(iterator)
    started = {worker_of(accessor)} | children(worker_of(accessor))
    assert len(started) == 2
    os.kill(worker_of(accessor), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(poptorch.Error, match="was killed by SIGKILL"):
        [next(iterator) for _ in range(8)]
    assert time.monotonic() - began < 10
    assert gone_within(started, 10)


def test_an_interrupt_reaches_the_program_only() -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored here
    accessor = load(torch.utils.data.DataLoader(Count(50), num_workers=1), buffer_size=1)
    signal.signal(signal.SIGINT, previous)
    iterator = iter(accessor)
    next(iterator)
    for pid in {worker_of(accessor)} | children(worker_of(accessor)):
        os.kill(pid, signal.SIGINT)
    assert [int(next(iterator)[0, 0]) for _ in range(49)] == list(range(1, 50))
    assert len(list(accessor)) == 50


# --- endings -------------------------------------------------------------------------------------


@pytest.mark.alone
def test_terminate_interrupts_a_data_set_that_never_returns() -> None:
    accessor = load(StopsAt(3, at=1))
    next(iter(accessor))
    started = {worker_of(accessor)}
    began = time.monotonic()
    accessor.terminate()
    assert time.monotonic() - began < 10
    assert not alive(started)
    accessor.terminate()
    with pytest.raises(poptorch.Error, match="terminated"):
        next(accessor)


def test_iterators_are_closed_in_order(tmp_path: Path) -> None:
    accessor = load(MarksItsEnd(tmp_path / "mark"))
    next(iter(accessor))
    time.sleep(0.1)  # Now it is stuck.
    accessor.terminate()
    assert (tmp_path / "mark").read_text() == "closed"


@pytest.mark.alone
def test_an_accessor_that_is_dropped_ends_its_worker() -> None:
    accessor = load(Count(9))
    started = {worker_of(accessor)}
    del accessor
    assert gone_within(started, 10)


def test_batches_survive_their_accessor() -> None:
    batch = next(iter(load(Count(9, shape=(100_000,)))))
    gc.collect()
    assert batch.sum() == 0


def test_no_descriptors_are_left_open() -> None:
    load(Count(3)).terminate()
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with load(Count(3)) as accessor:
            list(accessor)
        with pytest.raises(poptorch.Error):
            load(FailsAt(3, bad=0))
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_forked_copy_of_the_program_may_neither_read_nor_end_it() -> None:
    accessor = load(Count(9))
    iterator = iter(accessor)

    def copy(pipe: Any) -> None:
        try:
            next(iterator)
        except poptorch.Error as error:
            pipe.send(str(error))
        accessor.terminate()

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=copy, args=(sender,))
    process.start()
    assert "another process" in receiver.recv()
    process.join()
    assert len(list(accessor)) == 9


def _program(pipe: Any, act: Callable[[], None]) -> None:
    """A program of its own: it loads, tells its descendants, and then does something drastic."""
    loader = torch.utils.data.DataLoader(StopsAt(9, at=2), num_workers=1)
    accessors = [load(Stream(1000)), load(StopsAt(9, at=1)), load(loader)]
    for accessor in accessors:
        next(iter(accessor))
    time.sleep(0.1)  # The first waits for free slots, the others are stuck in their data.
    pipe.send(children(os.getpid()))
    act()


def _kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit_at_once() -> None:
    os._exit(3)


def _return() -> None:
    pass


def _fail() -> None:
    raise SystemExit("a failing program")


@pytest.mark.alone
@pytest.mark.parametrize("act", [_kill_itself, _exit_at_once, _return, _fail])
def test_however_a_program_ends_its_workers_do_too(act: Callable[[], None], capfd: Any) -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_program, args=(sender, act))
    process.start()
    started = receiver.recv()
    assert len(started) == 4
    process.join(30)
    assert process.exitcode is not None
    assert gone_within(started, 10)


SCRIPT = """
import sys, torch, poptorch
from torch.utils.data import TensorDataset
data = TensorDataset(torch.arange(40.0))
loader = poptorch.DataLoader(
    poptorch.Options(), data, batch_size=2, num_workers=1, mode=poptorch.DataLoaderMode.Async
)
next(iter(loader))
print(loader._accessor._worker._process.pid, flush=True)
if sys.stdin.readline() == "die\\n":
    import os
    os.kill(os.getpid(), 9)
"""


@pytest.mark.alone
def test_scripts_end_with_all_they_started(start: Any) -> None:
    programs = [start(SCRIPT) for _ in range(2)]
    families = []
    for program in programs:
        assert program.stdout.readline().strip().isdigit()
        families.append({program.pid} | children(program.pid))
    for program, word in zip(programs, ("die", "exit"), strict=True):
        program.stdin.write(word + "\n")
        program.stdin.flush()
    assert [program.wait(10) for program in programs] == [-signal.SIGKILL, 0]
    assert gone_within(families[0] | families[1], 5)
