"""What instances could leave behind: processes that outlive them, and files in shared memory.

The agent is made the reaper of all its descendants, so that even a process that left its session
is still known by its ancestors.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SHARED_MEMORY = Path("/dev/shm")
#: So often nothing is found before nothing is believed to be there.
_QUIET_LOOKS = 3
#: What was killed may take so long, and the grace, to be gone.
_DYING_SECONDS = 0.5
#: PyTorch names shared memory by the process that made it.
_TORCH_FILE = re.compile(r"torch_([0-9]+)_[0-9]+_[0-9]+")


def adopt_orphans() -> None:
    """Processes that lose their parent become children of this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> set[int]:
    """All processes below `root` that are not dead yet."""
    parents: dict[int, int] = {}
    dead = {root}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            text = Path(f"/proc/{name}/stat").read_bytes()
            fields = text[text.rindex(b")") + 2 :].split()
            parents[int(name)] = int(fields[1])
            if fields[0] in (b"Z", b"X"):
                dead.add(int(name))  # but it may still be the way to its children
    found: set[int] = set()
    for pid in parents:
        chain, at = [pid], pid
        while at in parents and at != root and at not in found:
            at = parents[at]
            chain.append(at)
        if at == root or at in found:
            found.update(chain)
    return found - dead


def end_descendants(
    patience: float, grace: float, seen: set[int], keep: frozenset[int] = frozenset()
) -> None:
    """End what instances left; those that tidy up after them get a moment to do it themselves."""
    root = os.getpid()
    started = time.monotonic()
    told: float | None = None
    killed: float | None = None
    quiet = 0
    while True:
        _reap()
        left = descendants(root) - keep
        seen |= left
        now = time.monotonic()
        # Processes whose parents die while we look may not be seen at once.
        quiet = 0 if left else quiet + 1
        if quiet == _QUIET_LOOKS or (killed is not None and now - killed > grace + _DYING_SECONDS):
            return
        # Step by step, as a busy machine may let us look only once in a while.
        if told is not None and now - told > grace:
            _signal(left, signal.SIGKILL)
            killed = killed or now
        elif told is None and now - started > patience:
            _signal(left, signal.SIGTERM)
            told = now
        time.sleep(0.05)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def remove_shared_memory(pids: set[int], folder: Path = _SHARED_MEMORY) -> list[str]:
    """Remove PyTorch's files whose makers were `pids`, all of which are gone."""
    removed = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = _TORCH_FILE.fullmatch(name)
            if match is None or int(match[1]) not in pids:
                continue
            with contextlib.suppress(OSError):
                (folder / name).unlink()
                removed.append(name)
    return removed
