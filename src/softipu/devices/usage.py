"""What is going on: who holds each IPU and what it does. Reading only; disturbs nobody.

Whether an IPU is held is found by locking its file for an instant, shared, so that readers never
stop each other; a program that attaches in that very instant tries again.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .. import arch
from . import process
from .home import Home, explained, read_json
from .model import Ipu, Partition
from .record import Counters, Record, parse
from .telemetry import Sensors, model_sensors, session_utilisation, utilisation

_SECOND_LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class IpuStatus:
    """One IPU at one moment."""

    ipu: Ipu
    held: bool
    record: Record | None  #: None if free, or if the holder's record is missing or damaged
    local: bool  #: the holder is in this pid namespace, so its pid means something here
    counters: Counters | None
    seconds_held: float
    utilisation: float  #: 0 to 1, now
    session_utilisation: float  #: 0 to 1, since the lease began
    sensors: Sensors  #: modelled

    @property
    def monitored(self) -> bool:
        return self.record is not None and self.record.monitoring


def lock_path(home: Home, ipu: Ipu) -> Path:
    return home.ipus / f"{ipu.key}.lock"


def record_path(home: Home, ipu: Ipu) -> Path:
    return home.ipus / f"{ipu.key}.json"


class _Look:
    """One look at many IPUs. Works on plain texts: a pod has hundreds of files to open."""

    def __init__(self, home: Home) -> None:
        self._folder = str(home.ipus)
        self.exists = home.exists()
        self.observer = process.Observer()
        self.now = process.boot_seconds()

    def is_held(self, ipu: Ipu) -> bool:
        if not self.exists:
            return False
        try:
            descriptor = os.open(
                f"{self._folder}/{ipu.key}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def record(self, ipu: Ipu) -> Record | None:
        """The record of a held IPU; None if it is damaged, or left by a process now gone."""
        record = parse(Record, read_json(f"{self._folder}/{ipu.key}.json"))
        return None if record is None or self.observer.is_gone(record.identity) else record

    def counters(self, ipu: Ipu, record: Record) -> Counters | None:
        found = parse(Counters, read_json(f"{self._folder}/{ipu.key}.telemetry.json"))
        if found is None or (found.pid, found.start_ticks) != (record.pid, record.start_ticks):
            return None
        return found

    def age(self, record: Record) -> float:
        return max(0.0, self.now - record.since_boot)


def has_live_record(home: Home, ipu: Ipu) -> bool:
    return _Look(home).record(ipu) is not None


def status(home: Home, partition: Partition) -> tuple[IpuStatus, ...]:
    """Every IPU of a partition, in order of id."""
    look = _Look(home)
    system = arch.system(partition.system)
    with explained(home.ipus):
        found = [_glance(look, ipu) for ipu in partition.ipus]
        if any(one.held and one.record is None for one in found):
            # Most likely somebody attaches or detaches at this very moment: look again.
            time.sleep(_SECOND_LOOK_SECONDS)
            found = [
                _glance(look, one.ipu) if one.held and one.record is None else one for one in found
            ]
    loads: dict[tuple[str, int], list[float]] = {}
    for one in found:
        loads.setdefault(one.ipu.board, []).append(one.load)
    statuses = []
    for one in found:
        board, record = loads[one.ipu.board], one.record
        session = 0.0
        if record is not None and one.counters is not None:
            session = session_utilisation(one.counters, record, look.now)
        statuses.append(
            IpuStatus(
                ipu=one.ipu,
                held=one.held,
                record=record,
                local=record is not None and look.observer.can_see(record.identity),
                counters=one.counters,
                seconds_held=look.age(record) if record is not None else 0.0,
                utilisation=one.load,
                session_utilisation=session,
                sensors=model_sensors(system, sum(board) / len(board), one.load),
            )
        )
    return tuple(statuses)


class _Glance(NamedTuple):
    """What the files of one IPU say, before its board's neighbours are known."""

    ipu: Ipu
    held: bool
    record: Record | None = None
    counters: Counters | None = None
    load: float = 0.0


def _glance(look: _Look, ipu: Ipu) -> _Glance:
    if not look.is_held(ipu):
        return _Glance(ipu, held=False)
    record = look.record(ipu)
    counters = look.counters(ipu, record) if record is not None else None
    load = utilisation(counters, look.now) if counters is not None else 0.0
    return _Glance(ipu, True, record, counters, load)


def holders(home: Home, ipus: tuple[Ipu, ...]) -> list[str]:
    """Who holds any of these IPUs, one phrase for each process."""
    look = _Look(home)
    with explained(home.ipus):
        return _phrases(look, ipus)


def _phrases(look: _Look, ipus: tuple[Ipu, ...]) -> list[str]:
    held_by: dict[process.Identity, list[Ipu]] = {}
    records: dict[process.Identity, Record] = {}
    unknown: list[Ipu] = []
    for ipu in ipus:
        if not look.is_held(ipu):
            continue
        record = look.record(ipu)
        if record is None:
            unknown.append(ipu)
            continue
        held_by.setdefault(record.identity, []).append(ipu)
        records[record.identity] = record
    phrases = []
    for who, held in held_by.items():
        record = records[who]
        place = "" if look.observer.can_see(who) else f" on {record.host}"
        phrases.append(
            f"pid {record.pid}{place} ({record.command}, user {record.user}, for "
            f"{duration(look.age(record))}) on {_ids(held)}"
        )
    if unknown:
        phrases.append(f"a process that left no readable record on {_ids(unknown)}")
    return phrases


def _ids(ipus: list[Ipu]) -> str:
    numbers = ", ".join(str(ipu.id) for ipu in ipus[:8])
    more = f" and {len(ipus) - 8} more" if len(ipus) > 8 else ""
    return f"IPU{'s' if len(ipus) > 1 else ''} {numbers}{more}"


def duration(seconds: float) -> str:
    """As the tools print it: 13s, 4m1s, 2h5m, 3d4h."""
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"
