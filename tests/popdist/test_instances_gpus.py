"""When gradients go straight between GPUs, and waiting for that in bounded time; no GPU needed."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch

from softipu.instances import gpus

MOMENT, LONG = timedelta(milliseconds=50), timedelta(seconds=30)


def test_nccl_is_for_instances_with_a_gpu_each() -> None:
    assert gpus.apart([b"GPU-1", b"GPU-2"])
    assert not gpus.apart([b"GPU-1", b"GPU-1"]), "NCCL refuses two ranks on one GPU"
    assert not gpus.apart([b"GPU-1", b""]), "one of them computes on its CPU"
    assert gpus.place_of(torch.device("cpu")) == b""


def assert_answered(answer: threading.Event) -> None:
    assert answer.wait(30)


def test_connecting_is_waited_for_in_slices() -> None:
    answer = threading.Event()
    work = gpus.Connecting(lambda: assert_answered(answer))
    with pytest.raises(RuntimeError, match="still being connected"):
        work.wait(MOMENT)
    assert not work.is_completed()
    answer.set()
    work.wait(LONG)
    assert work.is_completed()


def test_what_fails_while_connecting_reaches_the_one_who_waits() -> None:
    def refuse() -> None:
        raise RuntimeError("Duplicate GPU detected")

    work = gpus.Connecting(refuse)
    with pytest.raises(RuntimeError, match="Duplicate GPU"):
        work.wait(LONG)


class _Slow:
    """As NCCL's work: done after so many looks, and its `wait` returns at once."""

    def __init__(self, looks: int) -> None:
        self.looks, self.ordered = looks, False

    def is_completed(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def wait(self) -> None:
        self.ordered = True


def test_a_reduction_is_over_only_when_the_gpu_says_so() -> None:
    slow = _Slow(20)
    gpus.OnGpu(slow).wait(LONG)
    assert slow.looks < 0
    assert slow.ordered, "the stream must wait for NCCL's own"


def test_a_reduction_that_does_not_end_is_left_after_a_slice() -> None:
    stuck = _Slow(10**9)
    with pytest.raises(RuntimeError, match="not done"):
        gpus.OnGpu(stuck).wait(MOMENT)
    assert not stuck.ordered
