"""What an estimate says, as data with a versioned JSON form, which reports and `pva` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any

from .settings import Settings

#: Of the JSON form. A reader refuses a higher number.
FORMAT = 1

#: The phase of what a call does once, at its end: outputs that wait for it.
AT_END = "end"


def kib(size: float) -> int:
    """Bytes as whole KiB that hold them, so that what does not fit never looks as if it did."""
    return ceil(size / 1024)


@dataclass(frozen=True)
class Cycles:
    """Cycles by cause. They add up: nothing here overlaps."""

    compute: float = 0.0
    exchange: float = 0.0
    sync: float = 0.0
    host: float = 0.0
    links: float = 0.0  # other IPUs of the replica, other replicas

    @property
    def total(self) -> float:
        return self.compute + self.exchange + self.sync + self.host + self.links

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(
            self.compute + other.compute, self.exchange + other.exchange, self.sync + other.sync,
            self.host + other.host, self.links + other.links,
        )  # fmt: skip

    def times(self, factor: float) -> Cycles:
        return Cycles(
            self.compute * factor, self.exchange * factor, self.sync * factor,
            self.host * factor, self.links * factor,
        )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One op (or transfer) as it runs once on its IPU."""

    op: str
    kind: str
    source: str
    path: str
    phase: str
    stage: int
    ipu: int
    cycles: Cycles
    #: Multiply-adds or vector operations, for the share of the peak.
    flops: float
    tiles_used: int
    #: How it is spread, in words: `AMP 4×2×92, serialised 2`.
    plan: str
    #: Bytes on the fullest tile while it runs: what lives through it, and what it needs itself.
    live_bytes: int
    temporary_bytes: int


@dataclass(frozen=True)
class IpuMemory:
    """Bytes of an IPU's fullest tile by why they are there, at the step where they are most."""

    ipu: int
    capacity: int
    #: weights, state, code, vertex_state, exchange_code, stash, host_buffers, activations,
    #: temporary
    fullest_tile: dict[str, int]
    #: Sums over all tiles.
    all_tiles: dict[str, int]
    always_live: int
    not_always_live_peak: int
    peak_step: str
    #: Bytes of tiles at the peak: the first tile of each run, and the bytes of each in the run.
    #: Modelled are those of the fullest tile, and the mean of the others; that these are alike, and
    #: which tile is the fullest, is assumed.
    tiles: tuple[tuple[int, int], ...]

    @property
    def used(self) -> int:
        return sum(self.fullest_tile.values())

    @property
    def fits(self) -> bool:
        return self.used <= self.capacity


@dataclass(frozen=True)
class Hint:
    """Something to change, and what the model expects of it."""

    option: str
    text: str
    bytes_saved: int = 0
    speed_ratio: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """What the real machine would have done. `cycles` are those of one call on the slowest IPU."""

    name: str
    settings: Settings
    schedule: dict[str, Any]
    clock_hz: float
    #: Of one call, over everything that happens one after the other.
    cycles: Cycles
    seconds: float
    #: From the first byte of a sample to its result.
    latency_seconds: float
    throughput: float
    steps: tuple[Step, ...]
    memory: tuple[IpuMemory, ...]
    hints: tuple[Hint, ...] = ()
    warnings: tuple[str, ...] = ()
    #: Operators without a cost: how often each appears.
    unknown: dict[str, int] = field(default_factory=dict)
    #: Whether changes were tried, so that no hints mean that none was worth it.
    hints_tried: bool = False

    @property
    def fits(self) -> bool:
        return all(memory.fits for memory in self.memory)

    @property
    def training(self) -> bool:
        return any(step.phase not in ("forward", AT_END) for step in self.steps)

    def loops(self) -> tuple[int, int]:
        """Micro-batches between updates, and updates in a call. Without updates nothing separates
        the iterations, so that all micro-batches are of one kind."""
        accumulation = max(1, int(self.schedule.get("accumulation", 1)))
        iterations = max(1, int(self.schedule.get("device_iterations", 1)))
        return (accumulation, iterations) if self.training else (accumulation * iterations, 1)

    def runs(self) -> dict[str, int]:
        """How often a step of each phase runs in one call."""
        micro_batches, updates = self.loops()
        known = {"update": updates, AT_END: 1}
        return {
            phase: known.get(phase, micro_batches * updates)
            for phase in dict.fromkeys(step.phase for step in self.steps)
        }

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "fits": self.fits, **asdict(self)}

    def __str__(self) -> str:
        """What it found, where time and memory go, and what to change, in a screen."""
        from .text import summary

        return summary(self)

    def compare(self, *others: Estimate, names: Sequence[str] = ()) -> str:
        """This one and others side by side, a line each; `names` say which is which."""
        from .text import compared

        every = (self, *others)
        known = names or [f"{number}: {each.name}" for number, each in enumerate(every, 1)]
        if len(known) != len(every) or len(set(known)) != len(every):
            raise ValueError(f"{len(every)} estimates need as many different names, not {names!r}")
        return compared(dict(zip(known, every, strict=True)))
