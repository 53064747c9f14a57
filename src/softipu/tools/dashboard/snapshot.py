"""What the page shows at one moment, as plain data that turns into JSON without further thought.

The dataclasses are the documented form of /api/snapshot. How they are filled is the collector's
business, and how they look is the page's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

#: Raised when a field changes its meaning or goes away; new fields alone do not raise it.
VERSION = 1


@dataclass(frozen=True)
class SystemView:
    """A kind of system that partitions in view belong to; counts are of what is in view."""

    name: str
    product: str
    chip: str
    chip_product: str
    board_type: str
    ipus: int
    machines: int
    boards: int
    clock_hz: int
    memory_bytes: int  #: tile memory of one IPU


@dataclass(frozen=True)
class Holder:
    """Who holds an IPU; `process` is the key of its row in `Snapshot.processes`."""

    process: str
    pid: int
    command: str
    user: str
    since: float
    executable: str


@dataclass(frozen=True)
class IpuView:
    """One IPU. Power and temperatures are modelled, never measured."""

    key: str  #: the same in every partition that names this IPU
    id: int
    host: str
    number: int  #: IPU# within its machine
    serial: str
    board: str
    state: str  #: "free", "held", or "unknown" where the state could not be read
    holder: Holder | None  #: None also for an IPU that is held by nobody knows whom
    utilisation: float
    session_utilisation: float
    memory_bytes: int
    memory_total: int
    clock_hz: int
    host_in: float  #: bytes per second from the host
    host_out: float
    ipu_power: float
    board_power: float
    board_temperature: float
    die_temperature: float


@dataclass(frozen=True)
class PartitionView:
    name: str
    active: bool
    size: int
    busy: int
    origin: str
    reconfigurable: bool
    gcd: int | None
    system: str
    board_type: str
    interconnect: str
    ipus: list[IpuView]


@dataclass(frozen=True)
class ProcessView:
    """One lease: a process that holds two devices has two of these."""

    key: str
    slot: int  #: small number that stays the same while the lease lasts; gives colour and letter
    pid: int
    command: str
    user: str
    host: str
    local: bool
    partition: str
    device: int
    ipus: list[int]
    since: float
    seconds_held: float
    utilisation: float  #: mean over its IPUs
    session_utilisation: float
    memory_bytes: int  #: sum over its IPUs
    host_in: float
    host_out: float
    executable: str


@dataclass(frozen=True)
class Totals:
    """Sums over everything in view; an IPU or board that several partitions name counts once."""

    ipus: int
    known: int  #: IPUs whose state could be read; the sums are over these
    busy: int
    utilisation: float  #: mean over all IPUs
    held_utilisation: float  #: mean over those that are held
    memory_bytes: int
    memory_total: int
    boards: int
    power: float  #: watts of all boards, modelled
    host_in: float
    host_out: float
    processes: int


@dataclass(frozen=True)
class Problem:
    """Something that could not be read, in the words of softipu.errors."""

    code: str
    what: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Snapshot:
    version: int
    softipu: str
    sequence: int
    time: float  #: seconds since 1970 at the server; never goes backwards while it runs
    interval: float
    server: str
    home: str
    stale: bool  #: the partitions are those of the last time that they could be read
    modelled: list[str]  #: names of the fields that come from a model
    systems: list[SystemView]
    partitions: list[PartitionView]
    processes: list[ProcessView]
    totals: Totals
    problems: list[Problem]


MODELLED = [
    "ipu_power", "board_power", "board_temperature", "die_temperature", "power",
]  # fmt: skip


def encode(value: object) -> bytes:
    """JSON of a snapshot (or any of its parts) on one line, ready for an event stream."""
    # `vars` instead of `asdict`: no deep copy of 256 IPUs at every update.
    return json.dumps(value, default=vars, separators=(",", ":"), allow_nan=False).encode()
