"""Who a process is, in a way that survives reused pids and changed clocks.

A pid alone says nothing once its process is gone. A pid with its start time (in ticks since boot),
the boot's id and the pid namespace names one process for ever.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Identity:
    pid: int
    start_ticks: int  #: 0 where the system does not tell
    boot_id: str
    pid_namespace: int  #: 0 where the system does not tell
    host: str


def start_ticks(pid: int) -> int | None:
    """When a process started, or None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command may hold spaces and brackets: count from behind it.
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def here() -> Identity:
    """This process. Not cached: a forked child is another one."""
    pid = os.getpid()
    return Identity(pid, start_ticks(pid) or 0, _boot_id(), _pid_namespace(), os.uname().nodename)


class Observer:
    """Judges identities as of one moment: what it found out about a process, it keeps."""

    def __init__(self) -> None:
        self._boot_id = _boot_id()
        self._pid_namespace = _pid_namespace()
        self._host = os.uname().nodename
        self._alive: dict[Identity, bool] = {}

    def can_see(self, who: Identity) -> bool:
        """Whether that process is in sight at all: same boot of the same machine and namespace."""
        return (who.boot_id, who.pid_namespace) == (self._boot_id, self._pid_namespace)

    def is_gone(self, who: Identity) -> bool:
        """Whether that process surely does not exist; of one out of sight, nobody can tell."""
        if not self.can_see(who):
            return who.host == self._host and who.boot_id != self._boot_id  # an earlier boot
        if who not in self._alive:
            self._alive[who] = is_alive(who)
        return not self._alive[who]


def is_alive(who: Identity) -> bool:
    """Whether exactly that process, and not one with a reused pid, runs now."""
    if who.start_ticks == 0:
        try:
            os.kill(who.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
    return start_ticks(who.pid) == who.start_ticks


def boot_seconds() -> float:
    """Seconds since boot: unlike the wall clock, it never goes backwards."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def command_name() -> str:
    """The executable's name, as the tools show it (python3, not the script)."""
    return os.path.basename(sys.executable or "") or "python"


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
