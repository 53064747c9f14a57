"""Lock files: held by one process at a time, freed by the kernel when it dies, removable.

Unlike the locks of leases, these may be deleted, by whoever holds them: a process that locked a
file which is no longer at its path starts again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from .. import forksafe


def acquire(path: Path, mode: int, waiting: Callable[[], None] | None = None) -> FileIO | None:
    """Lock the file, made with exactly `mode` if it is not there.

    Where somebody else holds it: None, or with `waiting`, call that once and wait for as long as
    it takes. Raises OSError.
    """
    while True:
        lock = _opened(path, mode)
        try:
            if not _flock(lock):
                if waiting is None:
                    lock.close()
                    return None
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, path):
                return lock
        except BaseException:
            lock.close()
            raise
        lock.close()


def release(lock: FileIO) -> None:
    """Unlock and close. A child that was forked meanwhile has closed it, and unlocks nothing."""
    if not lock.closed:
        fcntl.flock(lock, fcntl.LOCK_UN)  # also ends what a child holds that has yet to call exec
        lock.close()


def is_held(path: Path) -> bool:
    """Whether some process holds the lock; changes nothing and makes no file."""
    try:
        lock = FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "r")
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _opened(path: Path, mode: int) -> FileIO:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW

    def make() -> FileIO:
        try:
            return FileIO(os.open(path, flags), "r+")
        except FileNotFoundError:
            lock = FileIO(os.open(path, flags | os.O_CREAT, mode), "r+")
            if os.fstat(lock.fileno()).st_uid == os.geteuid():  # else another user was faster
                os.fchmod(lock.fileno(), mode)
            return lock

    return forksafe.opened(make)


def _flock(lock: FileIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(lock: FileIO, path: Path) -> bool:
    held = os.fstat(lock.fileno())
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)
