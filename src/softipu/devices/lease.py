"""Leases: a process holds virtual IPUs for as long as it keeps their lock files locked.

The lock is the truth and the kernel keeps it: it ends with the process, however that dies. The
record beside it only describes the holder. Lock files are never removed while softipu runs, since
two processes could then lock two files of the same name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import threading
import time
from dataclasses import replace
from io import FileIO
from pathlib import Path
from types import TracebackType

from .. import forksafe, settings
from ..errors import DevicesBusy, InvalidRequest, LeaseClosed
from . import process, usage
from .home import Home, explained
from .model import Device, Ipu, Partition
from .record import Record, complaint, dump
from .telemetry import Telemetry, telemetry_path

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
#: Somebody who holds the lock for longer than this without a record really holds it.
_SETTLING_SECONDS = 0.02
#: Monitors share the lock for microseconds; on a busy machine one may be put to sleep just then.
_LOOKING_SECONDS = 5.0


class Lease:
    """A held device. Release it, use it as a context manager, drop it, or end the process."""

    def __init__(
        self, home: Home, partition: Partition, device: Device, locks: list[FileIO], record: Record
    ) -> None:
        self._home = home
        self.partition = partition
        self.device = device
        self._locks = locks
        self._record = record
        self._records_removed = False
        self._mutex = threading.Lock()
        self.telemetry = Telemetry(home, device.ipus, record)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(ipu.id for ipu in self.device.ipus)

    @property
    def held(self) -> bool:
        """Whether this process holds the IPUs; a forked child of the holder does not."""
        return self._record.pid == os.getpid() and bool(self._locks)

    @property
    def record(self) -> Record:
        return self._record

    def describe(self, *, executable: str | None = None, memory_bytes: int | None = None) -> None:
        """Tell the tools what runs here and how much memory it takes on each IPU."""
        self._demand_held()  # first of all: in a forked child the mutex may be locked for ever
        with self._mutex:
            self._demand_held()  # another thread may have released it meanwhile
            described = replace(
                self._record,
                executable=self._record.executable if executable is None else executable,
                memory_bytes=self._record.memory_bytes if memory_bytes is None else memory_bytes,
            )
            _write_records(self._home, self.device, described)
            self._record = described

    def _demand_held(self) -> None:
        if not self.held:
            raise LeaseClosed(f"The lease of device {self.device.id} is closed.")

    def release(self) -> None:
        """Give the IPUs back. Releasing twice is allowed; a forked child releases nothing.

        May be interrupted at any point (Ctrl-C) and called again: each step can be repeated.
        """
        if not self.held:
            return
        with self._mutex:
            self.telemetry.close()
            # Records go before the locks: the next holder's record must never be deleted.
            if not self._records_removed:
                for ipu in self.device.ipus:
                    with contextlib.suppress(OSError):  # stale records are recognised: not fatal
                        usage.record_path(self._home, ipu).unlink(missing_ok=True)
                self._records_removed = True
            _close_all(self._locks)
            self._locks = []

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _open_lock(home: Home, path: Path) -> FileIO:
    while True:
        try:
            return forksafe.opened(lambda: FileIO(path, "r+"))
        except FileNotFoundError:
            home.make_lock(path)


def acquire(
    home: Home,
    partition: Partition,
    *,
    ipus: int = 1,
    device: int | None = None,
    timeout: float = 0.0,
    command: str | None = None,
) -> Lease:
    """Hold one device: the given id, or the first free one with that many IPUs.

    Waits up to `timeout` seconds (0: not at all, inf: for ever) and then raises DevicesBusy, which
    says who holds the IPUs.
    """
    if not timeout >= 0:  # refuses NaN too
        raise InvalidRequest(f"timeout={timeout!r} is not a number of seconds from 0.")
    if device is not None:
        wanted = partition.device(device)
        # Refuses parts of a partition that is not reconfigurable, as for a count.
        partition.groups(len(wanted.ipus))
        candidates: tuple[Device, ...] = (wanted,)
    else:
        candidates = partition.groups(ipus)
    home.prepare()
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        for candidate in candidates:
            with explained(home.ipus):
                locks = _try_lock(home, candidate)
                if locks is not None:
                    return _describe(home, partition, candidate, locks, command)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise _busy(home, partition, candidates)
        time.sleep(min(remaining, pause * _jitter()))
        pause = min(pause * 2, _LONGEST_PAUSE)


def _jitter() -> float:
    """0.5 to 1.5, so that many waiters do not try in step; `random` takes long to import."""
    return 0.5 + os.urandom(1)[0] / 255


def reset(home: Home, partition: Partition, ipus: tuple[Ipu, ...]) -> None:
    """Remove what dead holders left beside these IPUs; DevicesBusy if a living one holds any."""
    home.prepare()
    everything = Device(-1, ipus)
    with explained(home.ipus):
        locks = _try_lock(home, everything)
        if locks is None:
            raise _busy(home, partition, (everything,))
        try:
            for ipu in ipus:
                usage.record_path(home, ipu).unlink(missing_ok=True)
                telemetry_path(home, ipu).unlink(missing_ok=True)
        finally:
            _close_all(locks)


def _try_lock(home: Home, device: Device) -> list[FileIO] | None:
    """Lock all IPUs of a device or none."""
    locks: list[FileIO] = []
    try:
        for ipu in device.ipus:
            lock = _lock_one(home, ipu)
            if lock is None:
                _close_all(locks)
                return None
            locks.append(lock)
    except BaseException:
        _close_all(locks)
        raise
    return locks


def _close_all(locks: list[FileIO]) -> None:
    for lock in locks:
        if not lock.closed:
            # A child that is about to exec may have a copy that a close would leave locked.
            fcntl.flock(lock, fcntl.LOCK_UN)
            lock.close()


def _lock_one(home: Home, ipu: Ipu) -> FileIO | None:
    path = usage.lock_path(home, ipu)
    began = time.monotonic()
    while True:
        lock = _open_lock(home, path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            only_looked_at = _can_be_shared(lock)
            lock.close()
            patience = _LOOKING_SECONDS if only_looked_at else _SETTLING_SECONDS
            # Only a holder has a record, and shares its lock with nobody.
            is_held = not only_looked_at and usage.has_live_record(home, ipu)
            if is_held or time.monotonic() > began + patience:
                return None
            time.sleep(0.0005)
            continue
        try:
            if _is_still_named(lock, path):
                return lock
        except OSError:
            lock.close()
            raise
        lock.close()  # somebody deleted the file under us: lock the new one


def _can_be_shared(lock: FileIO) -> bool:
    """Whether nobody but monitors has the lock at this moment."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still_named(lock: FileIO, path: Path) -> bool:
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(named.st_mode):
        raise OSError(errno.ELOOP, "not a plain file")
    mine = os.fstat(lock.fileno())
    return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)


def _describe(
    home: Home, partition: Partition, device: Device, locks: list[FileIO], command: str | None
) -> Lease:
    who = process.here()
    uid = os.getuid()
    record = Record(
        pid=who.pid,
        start_ticks=who.start_ticks,
        boot_id=who.boot_id,
        pid_namespace=who.pid_namespace,
        host=who.host,
        uid=uid,
        user=process.user_name(uid),
        command=command or process.command_name(),
        since=time.time(),
        since_boot=process.boot_seconds(),
        partition=partition.name,
        device=device.id,
        ids=[ipu.id for ipu in device.ipus],
        monitoring=_monitoring(),
    )
    try:
        _write_records(home, device, record)
        return Lease(home, partition, device, locks, record)
    except BaseException:
        _close_all(locks)
        raise


def _write_records(home: Home, device: Device, record: Record) -> None:
    body = dump(record)
    problem = complaint(record)
    if problem is not None:
        raise InvalidRequest(f"A lease cannot be described so: {problem}.")
    for ipu in device.ipus:
        path = usage.record_path(home, ipu)
        with explained(path):
            home.write_json(path, body)


def _monitoring() -> bool:
    if settings.get("GCDA_MONITOR"):
        return True
    try:
        options = json.loads(settings.get("GCDA_OPTIONS") or "{}")
    except ValueError:
        return False  # the driver's own options: not ours to reject
    wanted = options.get("enableMonitoring") if isinstance(options, dict) else None
    return str(wanted).lower() in ("true", "1")


def _busy(home: Home, partition: Partition, candidates: tuple[Device, ...]) -> DevicesBusy:
    count = len(candidates[0].ipus)
    what = f"device of {count} IPU{'s' if count > 1 else ''}"
    ipus = {ipu.key: ipu for device in candidates for ipu in device.ipus}
    holders = usage.holders(home, tuple(ipus.values()))
    error = DevicesBusy(f"No free {what} in partition {partition.name}: the IPUs are busy.")
    if holders:
        error.cause = "They are held by " + "; ".join(holders) + "."
    return error
