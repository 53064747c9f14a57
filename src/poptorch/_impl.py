"""Private names of upstream that scripts and tests reach for, on top of our own modules."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from . import _context
from ._errors import createPoptorchError
from ._weights import is_wrapped as isWrapped

__all__ = ["createPoptorchError", "isDispatchTracing", "isWrapped"]

_live: weakref.WeakSet[Any] = weakref.WeakSet()


def isDispatchTracing() -> bool:
    """Whether a model is being captured."""
    return _context.isRunningOnIpu()


def _restoreWrapperIfNecessary(obj: Any) -> Any:
    """Upstream re-wraps unpickled objects here; ours are never pickled wrapped."""
    return obj


def register_live(executor: Any) -> None:
    _live.add(executor)


def at_exit() -> None:
    """Gives the IPUs back; weights that nobody fetched are lost, as on hardware."""
    for executor in list(_live):
        executable = executor._executable
        if executable is not None:
            executable.attachment.detach()


def _locks_of_child() -> None:
    """In a forked child, threads that held executors don't exist."""
    for executor in list(_live):
        executor._turn = threading.RLock()


os.register_at_fork(after_in_child=_locks_of_child)
