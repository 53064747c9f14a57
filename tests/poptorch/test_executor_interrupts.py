"""Ctrl-C and the device: when it takes effect, and that handlers are left as they were."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from poptorch._interrupts import held_back, let_through


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def handler_is_put_back() -> Iterator[None]:
    # In a job in the background, shells have Ctrl-C ignored, and Python leaves it so.
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, outside)


def interrupted(*, times: int, then: list[str]) -> None:
    with held_back():
        for _ in range(times):
            interrupt()
        then.append("completed")
    then.append("went on")


def test_ctrl_c_inside_takes_effect_at_the_end() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(times=1, then=done)
    assert done == ["completed"]


def test_a_second_ctrl_c_does_not_wait() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(times=2, then=done)
    assert done == []


def test_without_ctrl_c_nothing_happens() -> None:
    done: list[str] = []
    interrupted(times=0, then=done)
    assert done == ["completed", "went on"]


def test_between_steps_a_waiting_ctrl_c_gets_through() -> None:
    steps = []

    def loop() -> None:
        for step in range(5):
            if step == 2:
                interrupt()
            steps.append(step)
            let_through()

    with pytest.raises(KeyboardInterrupt), held_back():
        loop()
    assert steps == [0, 1, 2]
    let_through()  # nothing is pending any more


def test_nested_sections_wait_for_the_outermost() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), held_back():
        interrupted(times=1, then=done)
    assert done == ["completed", "went on"]


def test_an_exception_inside_passes_and_ctrl_c_with_it() -> None:
    def fail(*, interrupting: bool) -> None:
        if interrupting:
            interrupt()
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError), held_back():
        fail(interrupting=False)
    with pytest.raises(KeyboardInterrupt) as raised, held_back():
        fail(interrupting=True)
    assert isinstance(raised.value.__context__, ZeroDivisionError)


def test_the_users_own_handler_is_called_once_and_decides() -> None:
    calls: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        done: list[str] = []
        interrupted(times=1, then=done)
        with held_back():
            interrupt()
            let_through()
            assert len(calls) == 2
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [signal.SIGINT, signal.SIGINT]
    assert done == ["completed", "went on"]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done: list[str] = []
        interrupted(times=3, then=done)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["completed", "went on"]


@pytest.fixture
def worker_died() -> Iterator[list[int]]:
    """What PyTorch does about a data loader's worker: its handler of SIGCHLD raises."""
    calls: list[int] = []

    def handler(number: int, frame: Any) -> None:
        calls.append(number)
        raise RuntimeError("DataLoader worker exited unexpectedly")

    before = signal.signal(signal.SIGCHLD, handler)
    try:
        yield calls
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.signal(signal.SIGCHLD, before)


def dying(*, workers: int, then: list[str], and_ctrl_c: bool = False) -> None:
    with held_back():
        for _ in range(workers):
            signal.raise_signal(signal.SIGCHLD)
        if and_ctrl_c:
            interrupt()
        then.append("completed")
        let_through()
        then.append("went on")


def test_the_death_of_workers_waits_for_the_end_of_the_step(worker_died: list[int]) -> None:
    done: list[str] = []
    with pytest.raises(RuntimeError, match="worker exited"):
        dying(workers=3, then=done)
    assert done == ["completed"]
    assert worker_died == [signal.SIGCHLD]


def test_ctrl_c_comes_before_the_death_of_workers(worker_died: list[int]) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        dying(workers=1, then=done, and_ctrl_c=True)
    assert done == ["completed"]


def test_without_a_handler_children_end_unseen() -> None:
    done: list[str] = []
    dying(workers=1, then=done)
    assert done == ["completed", "went on"]


def test_other_threads_may_use_devices_too() -> None:
    done: list[str] = []
    thread = threading.Thread(target=interrupted, kwargs={"times": 0, "then": done})
    thread.start()
    thread.join()
    assert done == ["completed", "went on"]
