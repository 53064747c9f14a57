"""Collectives between instances, with threads in the place of processes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.errors import InstanceLate, InstanceLost, InstancesOutOfStep, LayoutsDiffer, NoGroup
from softipu.frontends.tensorflow import rounds
from softipu.frontends.tensorflow.rounds import FRAME_BYTES, Offer, Rounds, from_frame, to_frame


class Meeting:
    """Where the threads of a test exchange arrays."""

    def __init__(self, count):
        self.count = count
        self.barrier = threading.Barrier(count, timeout=20)
        self.slots = [None] * count
        self.lost = None

    def together(self, index, value):
        self.slots[index] = value
        self.barrier.wait()
        found = list(self.slots)
        self.barrier.wait()
        return found


class Peer:
    """One end of a meeting; counts what goes over it."""

    def __init__(self, meeting, index):
        self.meeting, self.index, self.count = meeting, index, meeting.count
        self.used = []

    def all_gather_fixed(self, frame):
        self.used.append("frame")
        return self.meeting.together(self.index, frame)

    def all_gather_ragged(self, rows):
        self.used.append("ragged")
        return self.meeting.together(self.index, rows)

    def all_reduce(self, array, reduction):
        self.used.append(reduction)
        parts = self.meeting.together(self.index, array.copy())
        array[...] = {"sum": np.sum, "max": np.max}[reduction](parts, axis=0)

    def lost(self):
        return self.meeting.lost

    def broadcast(self, array, root):
        self.used.append("broadcast")
        array[...] = self.meeting.together(self.index, array.copy())[root]


def in_threads(count, work, patience=10.0):
    """work(index, rounds) in each of `count` instances; what it returned or raised."""
    meeting = Meeting(count)
    peers = [Peer(meeting, index) for index in range(count)]
    outcomes = [None] * count

    def run(index):
        try:
            outcomes[index] = work(index, Rounds(peers[index], patience))
        except Exception as error:  # noqa: BLE001  (looked at by the test)
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=[index]) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes, peers


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize(("kind", "expected"), [("sum", np.add), ("max", np.maximum)])
def test_reductions_are_those_of_numpy_for_small_and_large_tensors(dtype, size, kind, expected):
    values = [np.arange(size).astype(dtype) * (index + 1) for index in range(3)]
    outcomes, _ = in_threads(3, lambda i, r: r.ask("x", kind, values[i]).result())
    for outcome in outcomes:
        wanted = expected(expected(values[0], values[1]), values[2])
        np.testing.assert_array_equal(outcome, wanted)
        assert outcome.dtype == values[0].dtype


@pytest.mark.parametrize("size", [2, 3000])
def test_values_are_gathered_joined_and_broadcast(size):
    def work(index, r):
        value = np.full([size, 2], index, np.float32)
        gathered = r.ask("g", "gather", value).result()
        joined = r.ask("c", "concat", value[: size - index]).result()
        sent = r.ask("b", "broadcast 1", value).result()
        return gathered, joined, sent

    outcomes, _ = in_threads(2, work)
    for gathered, joined, sent in outcomes:
        np.testing.assert_array_equal(gathered[:, 0, 0], [0, 1])
        assert gathered.shape == (2, size, 2)
        assert joined.shape == (size + size - 1, 2)
        assert joined[:, 0].sum() == size - 1
        np.testing.assert_array_equal(sent, np.ones([size, 2]))


def test_scalars_stay_scalars_and_travel_in_the_frame():
    outcomes, peers = in_threads(2, lambda i, r: r.ask("x", "sum", np.float32(i + 1)).result())
    assert [(o.shape, float(o)) for o in outcomes] == [((), 3.0)] * 2
    assert peers[0].used == ["frame"]


def test_a_large_tensor_travels_after_its_frame():
    _, peers = in_threads(2, lambda i, r: r.ask("x", "sum", np.ones(10_000)).result())
    assert peers[0].used == ["frame", "sum"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(np.zeros(2, np.float32), np.zeros(2, np.int32)), (np.zeros(2), np.zeros([2, 1]))],
    ids=["types", "shapes"],
)
def test_different_layouts_are_an_error_in_all_instances(first, second):
    outcomes, _ = in_threads(2, lambda i, r: r.ask("x", "sum", [first, second][i]).result())
    for outcome in outcomes:
        assert isinstance(outcome, LayoutsDiffer)
        assert "Tensor layouts did not match on all instances" in str(outcome)
        assert "instance 0: " in str(outcome)
        assert "instance 1: " in str(outcome)


def test_after_different_layouts_the_instances_go_on_together():
    def work(index, r):
        with pytest.raises(LayoutsDiffer):
            r.ask("x", "sum", np.zeros(index + 1)).result()
        return float(r.ask("x", "sum", np.float64(index)).result())

    assert in_threads(3, work)[0] == [3.0, 3.0, 3.0]


def test_instances_that_do_different_things_are_told_at_once_what_each_does():
    outcomes, _ = in_threads(
        2, lambda i, r: r.ask(["gradients", "metrics"][i], "sum", np.zeros(3)).result()
    )
    for outcome in outcomes:
        assert isinstance(outcome, InstancesOutOfStep)
        assert "instance 0: sum of float64[3] (gradients)" in str(outcome)
        assert "instance 1: sum of float64[3] (metrics)" in str(outcome)


def test_collectives_that_hold_up_nothing_meet_by_name_in_any_order():
    def work(index, r):
        names = ["x", "y"] if index == 0 else ["y", "x"]
        tickets = {
            name: r.ask(name, "sum", np.float32(ord(name) + index), exclusive=False)
            for name in names
        }
        return [float(tickets[name].result()) for name in ("x", "y")]

    expected = [float(2 * ord(name) + 1) for name in ("x", "y")]
    assert in_threads(2, work)[0] == [expected, expected]


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_orders_of_named_collectives_give_each_its_own_sum(data):
    count = data.draw(st.integers(2, 3), "instances")
    names = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), "names")
    orders = [data.draw(st.permutations(names), f"order {i}") for i in range(count)]
    sizes = {name: data.draw(st.sampled_from([1, 7, 2000]), name) for name in set(names)}

    def work(index, r):
        tickets = [
            (name, r.ask(name, "sum", np.full(sizes[name], index + 1.0), exclusive=False))
            for name in orders[index]
        ]
        return [(name, ticket.result()) for name, ticket in tickets]

    outcomes, _ = in_threads(count, work)
    for outcome in outcomes:
        assert not isinstance(outcome, Exception), outcome
        for name, result in outcome:
            np.testing.assert_array_equal(result, np.full(sizes[name], count * (count + 1) / 2))


def test_waiting_for_a_name_that_nobody_else_asks_for_ends():
    def work(index, r):
        r.ask(f"only {index}", "sum", np.zeros(1), exclusive=False).result()

    outcomes, _ = in_threads(2, work, patience=0.2)
    for outcome in outcomes:
        assert isinstance(outcome, InstanceLate)
        assert "0.2 s" in str(outcome)


def test_a_lost_instance_ends_all_collectives_that_wait():
    class Broken(Peer):
        def all_gather_fixed(self, frame):
            if len(self.used) == 1:
                raise InstanceLost("Instance 1 has ended; instance 0 waits for it in all_gather.")
            self.used.append("frame")
            theirs = Offer("other", 0, "sum", "float64", (), False)
            return [frame, np.frombuffer(to_frame(theirs, np.float64(1)), np.uint8)]

    r = Rounds(Broken(Meeting(2), 0), patience=10)
    waiting = r.ask("mine", "sum", np.float64(1), exclusive=False)
    assert not waiting.settled
    with pytest.raises(InstanceLost):
        r.ask("next", "sum", np.float64(1))
    with pytest.raises(InstanceLost):
        waiting.result()


def test_a_collective_that_waits_hears_of_an_instance_that_goes_away_meanwhile():
    def work(index, r):
        ticket = r.ask(f"only {index}", "sum", np.zeros(1), exclusive=False)
        told = threading.Event()
        ticket.when_settled(told.set)
        if index == 1:
            r._connection.meeting.lost = InstanceLost("Instance 2 has ended.")
        assert told.wait(20)
        ticket.result()

    outcomes, _ = in_threads(2, work, patience=60)
    for outcome in outcomes:
        assert isinstance(outcome, InstanceLost), outcome


@given(
    name=st.text(max_size=100),
    shape=st.lists(st.integers(0, 6), max_size=4),
    dtype=st.sampled_from(["float32", "int64", "bool"]),
    exclusive=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_frames_carry_offers_unchanged(name, shape, dtype, exclusive):
    array = np.ones(shape, dtype)
    offer = Offer(name, 3, "gather", dtype, tuple(shape), exclusive)
    frame = to_frame(offer, array)
    assert len(frame) == FRAME_BYTES
    found = from_frame(frame)
    assert (found.key, found.layout, found.exclusive) == (offer.key, offer.layout, exclusive)
    if found.content is None:
        assert array.nbytes > FRAME_BYTES / 2
    else:
        assert found.content == array.tobytes()


def test_names_of_any_length_fit_into_a_frame():
    long = "s" * 5000
    outcomes, _ = in_threads(2, lambda i, r: float(r.ask(long, "sum", np.float64(1)).result()))
    assert outcomes == [2.0, 2.0]
    assert rounds._LONGEST_NAME < FRAME_BYTES / 4


def test_a_process_that_ends_tells_those_that_wait_itself():
    def work(index, r):
        told = []
        ticket = r.ask(f"only {index}", "sum", np.zeros(1), exclusive=False)
        ticket.when_settled(lambda: told.append(threading.current_thread()))
        watcher = r._watcher
        r.end()
        assert not watcher.is_alive()
        assert told == [threading.current_thread()]
        for late in (ticket.result, lambda: r.ask("late", "sum", np.zeros(1))):
            with pytest.raises(NoGroup, match="This instance ends"):
                late()
        return "ended"

    outcomes, _ = in_threads(2, work)
    assert outcomes == ["ended", "ended"]


def test_a_process_ends_while_a_round_waits(monkeypatch):
    monkeypatch.setattr(rounds, "_END_SECONDS", 0.05)
    meeting = Meeting(2)
    alone = Rounds(Peer(meeting, 0), patience=60)

    def ask():
        with pytest.raises(threading.BrokenBarrierError):
            alone.ask("x", "sum", np.zeros(1))

    asking = threading.Thread(target=ask)
    asking.start()
    while not alone._lock.locked():
        pass
    alone.end()
    assert asking.is_alive()
    meeting.barrier.abort()
    asking.join(30)
    assert not asking.is_alive()


def test_the_end_comes_before_that_of_the_interpreter(monkeypatch):
    from softipu.frontends.tensorflow import between_instances

    at_exit = []
    monkeypatch.setattr(between_instances, "_rounds", None)
    monkeypatch.setattr(between_instances, "_Gloo", lambda: Peer(Meeting(2), 0))
    monkeypatch.setattr(between_instances.atexit, "register", at_exit.append)
    assert between_instances.rounds() is between_instances.rounds()
    assert at_exit == [between_instances.rounds().end]
