"""Threads: what only one of them may do at a time.

Three kinds of locks, taken in this order: `tracing`, then those of executors (an inference model's
before its trainer's), then `drawing`. Who holds a later one only tries an earlier one.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Lock = AbstractContextManager[bool]

_locks: dict[str, Any] = {}


def _renew() -> None:
    """In a forked child, threads that held locks don't exist."""
    _locks.update(tracing=threading.RLock(), drawing=threading.RLock())


_renew()
os.register_at_fork(after_in_child=_renew)


def tracing() -> Lock:
    """Captures, and all that uses torch's tracers and compiler: they patch torch itself."""
    lock: Lock = _locks["tracing"]
    return lock


def drawing() -> Lock:
    """Runs that draw from torch's own generator, and all runs on a GPU, which share a stream."""
    lock: Lock = _locks["drawing"]
    return lock


class IfNobodyTraces:
    """`with IfNobodyTraces() as free:` takes `tracing` if no other thread has it, and doesn't wait.

    For threads that run a step: who traces may want something of the executor that they run.
    """

    def __enter__(self) -> bool:
        self._lock = _locks["tracing"]
        self._free = bool(self._lock.acquire(blocking=False))
        return self._free

    def __exit__(self, *_exception: object) -> None:
        if self._free:
            self._lock.release()


def one_at_a_time(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    """The method of an executor, for one thread at a time."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with self._turn:
            return method(self, *args, **kwargs)

    return call
