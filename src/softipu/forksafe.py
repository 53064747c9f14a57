"""Locked files that a forked child must not keep open.

A lock ends when its last descriptor closes: one that a child inherits would outlive its parent. So
a child closes all of them, and no fork happens while one is being opened.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from io import FileIO

_open: weakref.WeakSet[FileIO] = weakref.WeakSet()
_forking = threading.RLock()


def opened(make: Callable[[], FileIO]) -> FileIO:
    """The file that `make` opens, closed in every child that is forked from now on.

    It is an object, not a number: dropped by an exception at any point, it closes itself.
    """
    with _forking:
        file = make()
        _open.add(file)
    return file


def _close_all_in_child() -> None:
    global _forking
    for file in list(_open):
        file.close()  # does not unlock: the parent's descriptor is still open
    _open.clear()
    _forking = threading.RLock()


os.register_at_fork(
    before=lambda: _forking.acquire() and None,
    after_in_parent=lambda: _forking.release(),
    after_in_child=_close_all_in_child,
)
