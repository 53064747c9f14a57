"""What a server or a command that was killed leaves behind, and how it is found and removed."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FOLDER, LOCK = "softipu-serve-", "lock"
_SHARED_MEMORY = Path("/dev/shm")
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.1


def dies_with_parent() -> Callable[[], None]:
    """For a child: ends in good order when this process is killed, and could not tell it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


def remove_abandoned() -> None:
    """Folders of servers whose command was killed before it could remove them."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/{LOCK}"):
        with contextlib.suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)


def unlink_region(name: str, prefix: str) -> None:
    """Removes the shared memory of one process."""
    # The name comes from a file that another process wrote.
    if name.startswith(prefix) and "/" not in name:
        (_SHARED_MEMORY / name).unlink(missing_ok=True)


def unlink_regions(prefix: str) -> None:
    """Removes all shared memory of a server."""
    for path in _SHARED_MEMORY.glob(f"{prefix}*"):
        path.unlink(missing_ok=True)


def processes_of(folder: Path) -> list[int]:
    """Living processes that were started from a folder of ours: their command lines name it."""
    wanted, found = os.fsencode(folder), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes() and _is_alive(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


def end_processes(folder: Path, patience: float) -> None:
    """Those that do not end by themselves within so many seconds are killed."""
    end = time.monotonic() + patience
    while alive := processes_of(folder):
        if time.monotonic() > end:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")
