"""What one moment alone cannot tell: rates of host I/O, and which lease has which colour.

Pure functions from the last state and a new status to the next state; the collector applies them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...devices import IpuStatus, Record

#: Writers may pause this long between two writes of their counters before the rate reads zero.
RATE_HOLD_SECONDS = 3.0


@dataclass(frozen=True)
class Rate:
    """Host I/O of one IPU, and the counters it was computed from."""

    who: tuple[int, int, float]  #: pid, its start, and when the lease began
    updated: float
    bytes_in: int
    bytes_out: int
    rate_in: float = 0.0
    rate_out: float = 0.0


@dataclass
class Memory:
    """What is carried from one snapshot to the next."""

    sequence: int = 0
    rates: dict[str, Rate] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    without_record: set[str] = field(default_factory=set)


def process_key(record: Record) -> str:
    """Names one lease for as long as it lasts, whatever happens to the pid later."""
    return f"{record.host}/{record.pid}/{record.start_ticks}/{record.partition}/{record.device}"


def next_rate(previous: Rate | None, status: IpuStatus, now_boot: float) -> Rate | None:
    """Bytes per second between the holder's last two writes that we saw.

    At first sight of a holder it is the mean since the lease began, so that short ones count too.
    """
    counters, record = status.counters, status.record
    if counters is None or record is None:
        return None
    who = (record.pid, record.start_ticks, record.since_boot)
    if previous is None or previous.who != who:
        previous = Rate(who, record.since_boot, 0, 0)
    seconds = counters.updated_boot - previous.updated
    if seconds <= 0:
        fresh = now_boot - counters.updated_boot < RATE_HOLD_SECONDS
        kept = (previous.rate_in, previous.rate_out) if fresh else (0.0, 0.0)
        return Rate(who, previous.updated, previous.bytes_in, previous.bytes_out, *kept)
    return Rate(
        who,
        counters.updated_boot,
        counters.host_bytes_in,
        counters.host_bytes_out,
        max(0, counters.host_bytes_in - previous.bytes_in) / seconds,
        max(0, counters.host_bytes_out - previous.bytes_out) / seconds,
    )


def next_slots(previous: dict[str, int], keys: Iterable[str]) -> dict[str, int]:
    """Keep every lease's slot; give new ones the smallest that is free."""
    wanted = list(dict.fromkeys(keys))
    slots = {key: previous[key] for key in wanted if key in previous}
    taken = set(slots.values())
    candidate = 0
    for key in wanted:
        if key not in slots:
            while candidate in taken:
                candidate += 1
            slots[key] = candidate
            taken.add(candidate)
    return slots
