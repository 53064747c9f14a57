"""What is going on: who holds each IPU and what it does. Reading only; disturbs nobody.

Whether an IPU is held is found by locking its file for an instant, shared, so that readers never
stop each other; a program that attaches in that very instant tries again.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from .. import arch
from . import process
from .home import Home, read_json
from .model import Ipu, Partition
from .record import Counters, Record, parse
from .telemetry import Sensors, model_sensors, session_utilisation, telemetry_path, utilisation


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


def is_held(home: Home, ipu: Ipu) -> bool:
    try:
        descriptor = os.open(lock_path(home, ipu), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def believable_record(home: Home, ipu: Ipu) -> Record | None:
    """The record of an IPU that is held; None if it is damaged, or left by a process now gone."""
    record = parse(Record, read_json(record_path(home, ipu)))
    if record is None:
        return None
    who = record.identity
    gone = process.is_local(who) and not process.is_alive(who)
    return None if gone or process.is_from_earlier_boot(who) else record


def has_live_record(home: Home, ipu: Ipu) -> bool:
    return believable_record(home, ipu) is not None


def status(home: Home, partition: Partition) -> tuple[IpuStatus, ...]:
    """Every IPU of a partition, in order of id."""
    exists = home.exists()
    now = process.boot_seconds()
    found = [_look(home, ipu, exists, now) for ipu in partition.ipus]
    loads: dict[tuple[str, int], list[float]] = {}
    for ipu, _, _, _, load, _ in found:
        loads.setdefault(ipu.board, []).append(load)
    system = arch.system(partition.system)
    statuses = []
    for ipu, held, record, counters, load, session in found:
        board = loads[ipu.board]
        statuses.append(
            IpuStatus(
                ipu=ipu,
                held=held,
                record=record,
                local=record is not None and process.is_local(record.identity),
                counters=counters,
                seconds_held=_age(record, now),
                utilisation=load,
                session_utilisation=session,
                sensors=model_sensors(system, sum(board) / len(board), load),
            )
        )
    return tuple(statuses)


def _look(
    home: Home, ipu: Ipu, exists: bool, now: float
) -> tuple[Ipu, bool, Record | None, Counters | None, float, float]:
    if not exists or not is_held(home, ipu):
        return ipu, False, None, None, 0.0, 0.0
    record = believable_record(home, ipu)
    if record is None:
        return ipu, True, None, None, 0.0, 0.0
    counters = parse(Counters, read_json(telemetry_path(home, ipu)))
    if counters is None or (counters.pid, counters.start_ticks) != (record.pid, record.start_ticks):
        return ipu, True, record, None, 0.0, 0.0
    return (
        ipu, True, record, counters,
        utilisation(counters, now), session_utilisation(counters, record, now),
    )  # fmt: skip


def _age(record: Record | None, now: float) -> float:
    return max(0.0, now - record.since_boot) if record is not None else 0.0


def holders(home: Home, ipus: tuple[Ipu, ...]) -> list[str]:
    """Who holds any of these IPUs, one phrase for each process."""
    by_process: dict[tuple[str, int, int], list[Ipu]] = {}
    records: dict[tuple[str, int, int], Record] = {}
    unknown: list[Ipu] = []
    if not home.exists():
        return []
    for ipu in ipus:
        if not is_held(home, ipu):
            continue
        record = believable_record(home, ipu)
        if record is None:
            unknown.append(ipu)
            continue
        who = (record.host, record.pid, record.start_ticks)
        by_process.setdefault(who, []).append(ipu)
        records[who] = record
    phrases = []
    now = process.boot_seconds()
    for who, held in by_process.items():
        record = records[who]
        place = "" if process.is_local(record.identity) else f" on {record.host}"
        phrases.append(
            f"pid {record.pid}{place} ({record.command}, user {record.user}, for "
            f"{duration(_age(record, now))}) on {_ids(held)}"
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
