"""Who still lives, by what one thread finds out from a store; no other process needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from softipu.instances import liveness
from softipu.instances.liveness import Departure, Look, Pulse, Watch


class Store:
    """As torch's store, for all instances at once. While it is silent, whoever asks it waits."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self._speaks = threading.Event()
        self._speaks.set()
        self._is_cut = False

    def fall_silent(self) -> None:
        self._speaks.clear()

    def cut(self) -> None:
        self._is_cut = True
        self._speaks.set()

    def set(self, key: str, value: str) -> None:
        self.content[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        self._answer()
        return all(key in self.content for key in keys)

    def get(self, key: str) -> bytes:
        self._answer()
        return self.content[key]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._answer()
        return [self.content[key] for key in keys]

    def _answer(self) -> None:
        self._speaks.wait()
        if self._is_cut:
            raise RuntimeError("the connection was closed")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(liveness, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(liveness, "_LEAVE_SECONDS", 1.0)
    made = Store()
    yield made
    made.cut()


def until(what: Callable[[], object]) -> object:
    """What it becomes, once it is something."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError("nothing came of it")


def started(store: Store, count: int = 3) -> list[Pulse]:
    pulses = [Pulse(store, index, count, cut=store.cut) for index in range(count)]
    for pulse in pulses:
        until(lambda pulse=pulse: pulse._look.beats)
    return pulses


def test_a_store_that_gives_no_answer_is_held_up_by_nobody_and_holds_up_nobody(
    store: Store,
) -> None:
    one = started(store)[1]
    assert one.departed(30.0) is None
    store.fall_silent()
    slowest = 0.0

    def ask() -> Departure | None:
        nonlocal slowest
        begin = time.monotonic()
        found = one.departed(0.5)
        slowest = max(slowest, time.monotonic() - begin)
        return found

    found = until(ask)
    assert slowest < 0.4
    assert str(found).startswith("Instance 0 can't be reached: what instances meet at")
    one.leave("has ended")
    one.stop()
    assert not one._thread.is_alive(), "it would come back while the interpreter ends"


def test_a_program_that_ends_while_the_store_is_silent_waits_a_moment_only(store: Store) -> None:
    one = started(store)[1]
    store.fall_silent()
    begin = time.monotonic()
    one.leave("has ended")
    one.stop()
    assert time.monotonic() - begin < 10
    assert not one._thread.is_alive()


def test_a_store_that_breaks_is_whose_it_is(store: Store) -> None:
    ours = started(store)[1]
    launchers = Pulse(store, 2, 3, launcher_holds=True)
    store.cut()
    assert until(lambda: ours.departed(30.0)) == Departure(
        0, "can't be reached (it holds what instances meet at)"
    )
    assert str(until(lambda: launchers.departed(30.0))).startswith("The launcher can't be reached")


def test_a_counter_that_stands_still_is_named_and_one_that_moves_is_not(store: Store) -> None:
    zero, one, two = started(store)
    two.stop()
    found = until(lambda: one.departed(0.3))
    assert isinstance(found, Departure)
    assert found.instance == 2
    assert "has given no sign of life" in found.story
    zero.leave("found it too", blamed=2)
    assert until(lambda: one.departed(30.0)) == Departure(2, "found it too")


def test_instance_0_goes_when_all_others_know(store: Store) -> None:
    zero, one, two = started(store)
    one.leave("has ended")
    assert not zero.everyone_left()
    zero.leave("has ended")
    until(zero.everyone_left)
    assert "parted/2" in store.content
    assert until(lambda: two.departed(30.0)) in (
        Departure(0, "has ended"), Departure(1, "has ended"),
    )  # fmt: skip
    for pulse in (zero, one, two):
        pulse.stop()


def test_time_in_which_this_process_stood_still_is_nobodys_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter([0.0, 1.0, 500.0, 501.0, 502.0, 503.0])
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    watch = Watch()
    for number in range(4):
        watch.see(Look(number, beats={1: 5}))
    assert watch.still == {1: 4.0}
    for _ in range(2):
        watch.see(Look(3, beats={1: 5}))
    assert watch.unanswered == 2.0
    assert watch.still == {1: 4.0}, "while the store says nothing, nothing is known of it"
